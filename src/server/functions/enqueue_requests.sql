-- Requests of one tenant that do nothing but enqueue, in one statement: idempotency keys, jobs and audit of all of them.
-- docs/decisions/0021-requests-share-commits.md
--
-- p_requests: [{first, last, key, digest, actor, action, status, correlationId, address}, ...]; `first` and `last` count the
-- request's jobs in p_jobs from 1, `digest` is hexadecimal, of the request that the key is for. The rest of the
-- parameters is for tallyman.enqueue_prepared.
--
-- Answers one row for each request, in order:
--   done      its jobs are written: `ids`, and which of them were there before (`existing`)
--   taken     nothing is written, its key has been used: `digest`, `status` and `body` are what was kept under it
--   skipped   nothing is written, because the key of another request was taken; send it again without that one
--   stale     nothing is written, because a kind is no longer what p_kinds says
--   busy      nothing of it is written, because another transaction has its lane (p_wait_ms 0 only)
--
-- Raises 55P03 where a lock was not granted within p_wait_ms, and 23505 where a key was used in the meantime. Then nothing
-- is written.
--
-- The answer is kept under the key as plain JSON: it holds ids, nothing secret. Keys are written last, with their answer,
-- and in sorted order: two batches with the same keys wait for each other in that order.
create or replace function tallyman_server.enqueue_requests(
  p_tenant text, p_requests json, p_kinds json, p_queues text[], p_priorities smallint[], p_jobs json, p_plain boolean,
  p_wait_ms integer
) returns table (outcome text, ids bigint[], existing boolean[], digest bytea, status integer, body text)
language plpgsql
set enable_seqscan = off set jit = off
as $$
#variable_conflict use_column
declare
  v_keys text[] := array(select r.key from json_to_recordset(p_requests) as r (key text) where r.key is not null);
  v_ids bigint[];
  v_existing boolean[];
begin
  perform set_config('lock_timeout', case p_wait_ms when 0 then '50ms' else p_wait_ms || 'ms' end, true);

  -- Relies on the primary key of idempotency_keys.
  if cardinality(v_keys) > 0 and exists (select 1 from tallyman_server.idempotency_keys k
                                          where k.tenant_id = p_tenant and k.key = any (v_keys)) then
    return query
    select case when k.key is null then 'skipped' else 'taken' end, null::bigint[], null::boolean[], k.digest, k.status,
           k.body
      from rows from (json_to_recordset(p_requests) as (key text)) with ordinality as r (key, n)
      left join tallyman_server.idempotency_keys k on k.tenant_id = p_tenant and k.key = r.key
     order by r.n;
    return;
  end if;

  select e.ids, e.existing into v_ids, v_existing
    from tallyman.enqueue_prepared(p_kinds, p_queues, p_priorities, p_jobs, p_plain, p_wait_ms) e;
  if v_ids is null then
    return query select 'stale', null::bigint[], null::boolean[], null::bytea, null::integer, null::text
      from json_array_elements(p_requests);
    return;
  end if;

  return query
  with request as materialized (
    select r.*, v_ids[r.first:r.last] as ids, v_existing[r.first:r.last] as existing,
           array_position(v_ids[r.first:r.last], null) is not null as is_busy
      from rows from (json_to_recordset(p_requests) as (
             first integer, last integer, key text, digest text, actor text, action text, status integer,
             "correlationId" text, address text)) with ordinality
        as r (first, last, key, digest, actor, action, status, correlation_id, address, n)
  ), kept as (
    insert into tallyman_server.idempotency_keys (tenant_id, key, digest, status, body)
    select p_tenant, r.key, decode(r.digest, 'hex'), r.status,
           json_build_object('ids', r.ids::text[], 'existing', r.existing)::text
      from request r where r.key is not null and not r.is_busy order by r.key
  ), audited as (
    insert into tallyman_server.audit_events
      (tenant_id, actor, action, resource, outcome, status, correlation_id, address)
    select p_tenant, r.actor, r.action,
           r.ids[1] || case when r.last > r.first then format(' and %s more', r.last - r.first) else '' end, 'done', r.status,
           r.correlation_id, r.address
      from request r where not r.is_busy order by r.n
  )
  select case when r.is_busy then 'busy' else 'done' end, r.ids, r.existing, null::bytea, null::integer, null::text
    from request r order by r.n;

  -- All of a request's jobs or none: what was written beside a busy one must go.
  if exists (select 1 from json_to_recordset(p_requests) as r (first integer, last integer)
              where r.last > r.first and array_position(v_ids[r.first:r.last], null) is not null) then
    raise exception 'a lane of this request is busy' using errcode = '55P03';
  end if;
end $$;
