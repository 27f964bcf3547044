-- From an event to jobs, in the transaction that emits it.

create or replace function tallyman_webhooks.is_subscribed(p_patterns text[], p_event_type text) returns boolean
language sql immutable as $$
  select exists (select 1 from unnest(p_patterns) p
                  where p = '*' or p = p_event_type
                     or (right(p, 2) = '.*' and starts_with(p_event_type, left(p, -1))))
$$;

-- A lane key has at most 256 bytes; an aggregate with a longer name gets a digest of it.
create or replace function tallyman_webhooks.lane_of(p_endpoint bigint, p_type text, p_id text) returns text
language sql immutable as $$
  select case when octet_length(full_key) <= 256 then full_key
              else 'endpoint:' || p_endpoint || ':sha256:' || encode(sha256(convert_to(full_key, 'UTF8')), 'hex') end
    from (select 'endpoint:' || p_endpoint || ':' || p_type || ':' || p_id) k (full_key)
$$;

-- One delivery of one event to one endpoint. Answers the delivery id; null when either is not there.
create or replace function tallyman_webhooks.dispatch(p_endpoint bigint, p_tenant text, p_event text, p_manual boolean)
returns uuid
language plpgsql as $$
declare
  v_id uuid := gen_random_uuid();
  v_job bigint;
begin
  select tallyman.enqueue(
           'webhook.deliver',
           json_build_object('delivery', v_id, 'event', v.id, 'endpoint', e.id),
           queue => 'webhooks', priority => 3, max_attempts => e.max_attempts, tenant_id => v.tenant_id,
           lane => case when e.ordered then tallyman_webhooks.lane_of(e.id, v.aggregate_type, v.aggregate_id) end)
    into v_job
    from tallyman_webhooks.endpoints e
    join tallyman_webhooks.events v on v.tenant_id = e.tenant_id
   where e.id = p_endpoint and v.tenant_id = p_tenant and v.id = p_event;
  if v_job is null then
    return null;
  end if;
  insert into tallyman_webhooks.dispatches (id, tenant_id, event_id, endpoint_id, job_id, manual)
  values (v_id, p_tenant, p_event, p_endpoint, v_job, p_manual);
  return v_id;
end $$;

-- Writes the event and one job for each endpoint that wants it. Answers how many; null when there was an event of
-- this id already, and nothing was done.
create or replace function tallyman_webhooks.emit(
  event_type text,
  aggregate_type text,
  aggregate_id text,
  payload json default '{}',
  tenant_id text default 'default',
  event_id text default gen_random_uuid()::text,
  occurred_at timestamptz default now()
) returns integer
language plpgsql as $$
#variable_conflict use_column
declare
  v_limit integer := coalesce(nullif(current_setting('tallyman.max_payload_bytes', true), ''), '1048576')::integer;
  v_dispatched integer;
begin
  if octet_length(emit.payload::text) > v_limit then
    raise exception 'payload of % bytes is over the limit of %', octet_length(emit.payload::text), v_limit
      using errcode = 'TM003', hint = 'Store it elsewhere and pass a reference, or raise tallyman.max_payload_bytes.';
  end if;
  insert into tallyman_webhooks.events (tenant_id, id, event_type, aggregate_type, aggregate_id, occurred_at, payload)
  values (emit.tenant_id, emit.event_id, emit.event_type, emit.aggregate_type, emit.aggregate_id, emit.occurred_at,
          coalesce(emit.payload, 'null'))
  on conflict do nothing;
  if not found then
    return null;
  end if;
  -- In the order of ids, so that two transactions that emit for the same aggregate lock its lanes in one order.
  select count(tallyman_webhooks.dispatch(e.id, e.tenant_id, emit.event_id, false)) into v_dispatched
    from (select e.id, e.tenant_id from tallyman_webhooks.endpoints e
           where e.tenant_id = emit.tenant_id and e.disabled_at is null
             and tallyman_webhooks.is_subscribed(e.event_types, emit.event_type)
           order by e.id) e;
  return v_dispatched;
end $$;

-- A job was buried: `job.dead_letter`. Not for deliveries, or one dead receiver would hear of its own death for ever.
create or replace function tallyman_webhooks.on_dead_letter() returns trigger
language plpgsql as $$
begin
  if exists (select 1 from tallyman_webhooks.endpoints e
              where e.tenant_id = new.tenant_id and e.disabled_at is null
                and tallyman_webhooks.is_subscribed(e.event_types, 'job.dead_letter')) then
    begin
      perform tallyman_webhooks.emit(
        'job.dead_letter', 'job', new.id::text,
        json_build_object(
          'id', new.id::text, 'source', new.source, 'queue', new.queue, 'kind', new.kind, 'lane', new.lane,
          'attempts', new.attempts, 'redrives', new.redrives, 'correlation_id', coalesce(new.correlation_id, new.id::text),
          'error', json_build_object('code', new.last_error ->> 'code', 'message', new.last_error ->> 'message')),
        tenant_id => new.tenant_id);
    exception when others then
      -- To bury a job matters more than to tell of it.
      raise warning 'job.dead_letter of job % was not emitted: %', new.id, sqlerrm;
    end;
  end if;
  return null;
end $$;

create or replace trigger emit_dead_letter after insert on tallyman.dead_letters
  for each row when (new.kind <> 'webhook.deliver') execute function tallyman_webhooks.on_dead_letter();
