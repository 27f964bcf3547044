-- Requests of one tenant that each emit one event, in one statement: idempotency keys, events and audit of all of them. The answers, the
-- locks and what is kept under a key are those of tallyman_server.enqueue_requests; none of them is `stale` or `busy`.
--
-- p_requests: [{type, aggregateType, aggregateId, payload, id, occurredAt, key, digest, actor, action, status, correlationId, address}, ...];
-- `payload` is JSON as a text. `ids` are the public ids of events.
create or replace function tallyman_server.emit_requests(p_tenant text, p_requests json, p_wait_ms integer)
returns table (outcome text, ids text[], existing boolean[], digest bytea, status integer, body text)
language plpgsql
set enable_seqscan = off set jit = off
as $$
#variable_conflict use_column
declare
  v_keys text[] := array(select r.key from json_to_recordset(p_requests) as r (key text) where r.key is not null);
  v_positions bigint[];
begin
  perform set_config('lock_timeout', case p_wait_ms when 0 then '50ms' else p_wait_ms || 'ms' end, true);

  -- Relies on the primary key of idempotency_keys.
  if cardinality(v_keys) > 0 and exists (select 1 from tallyman_server.idempotency_keys k
                                          where k.tenant_id = p_tenant and k.key = any (v_keys)) then
    return query
    select case when k.key is null then 'skipped' else 'taken' end, null::text[], null::boolean[], k.digest, k.status, k.body
      from rows from (json_to_recordset(p_requests) as (key text)) with ordinality as r (key, n)
      left join tallyman_server.idempotency_keys k on k.tenant_id = p_tenant and k.key = r.key
     order by r.n;
    return;
  end if;

  select tallyman_events.emit_many(
           array_agg(r.type order by r.n), array_agg(r.aggregate_type order by r.n), array_agg(r.aggregate_id order by r.n),
           array_agg(r.payload::json order by r.n), array_agg(p_tenant),
           case when count(r.id) > 0 then array_agg(r.id order by r.n) end, array_agg(r.occurred_at order by r.n))
    into v_positions
    from rows from (json_to_recordset(p_requests) as (
           type text, "aggregateType" text, "aggregateId" text, payload text, id text, "occurredAt" timestamptz)) with ordinality
      as r (type, aggregate_type, aggregate_id, payload, id, occurred_at, n);

  return query
  with request as materialized (
    select r.*, coalesce(r.id, 'evt_' || v_positions[r.n]) as event_id, v_positions[r.n] is null as was_there
      from rows from (json_to_recordset(p_requests) as (
             id text, key text, digest text, actor text, action text, status integer, "correlationId" text, address text))
           with ordinality as r (id, key, digest, actor, action, status, correlation_id, address, n)
  ), kept as (
    insert into tallyman_server.idempotency_keys (tenant_id, key, digest, status, body)
    select p_tenant, r.key, decode(r.digest, 'hex'), r.status,
           json_build_object('ids', array[r.event_id], 'existing', array[r.was_there])::text
      from request r where r.key is not null order by r.key
  ), audited as (
    insert into tallyman_server.audit_events
      (tenant_id, actor, action, resource, outcome, status, correlation_id, address)
    select p_tenant, r.actor, r.action, r.event_id, 'done', r.status, r.correlation_id, r.address from request r order by r.n
  )
  select 'done', array[r.event_id], array[r.was_there], null::bytea, null::integer, null::text from request r order by r.n;
end $$;
