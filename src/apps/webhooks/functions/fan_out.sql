-- Turns events into deliveries.

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

-- Creates deliveries and their jobs, one for each element of the arrays, which name existing events and endpoints. Returns
-- the delivery ids in that order. Jobs of ordered endpoints get a lane for each aggregate; the engine locks lanes in one order.
create or replace function tallyman_webhooks.deliver(p_events bigint[], p_endpoints bigint[], p_manual boolean) returns uuid[]
language plpgsql as $$
declare
  v_deliveries uuid[] := array(select gen_random_uuid() from unnest(p_events));
  v_work json;
  v_jobs bigint[];
begin
  if cardinality(v_deliveries) = 0 then
    return v_deliveries;
  end if;
  select json_agg(json_build_object(
           'kind', 'webhook.deliver', 'max_attempts', e.max_attempts, 'tenant_id', e.tenant_id,
           'payload', json_build_object('delivery', w.delivery, 'event', w.event_id::text, 'endpoint', e.id),
           'lane', case when e.ordered then tallyman_webhooks.lane_of(e.id, v.aggregate_type, v.aggregate_id) end)
           order by w.n)
    into v_work
    from unnest(v_deliveries, p_events, p_endpoints) with ordinality as w (delivery, event_id, endpoint_id, n)
    join tallyman_webhooks.endpoints e on e.id = w.endpoint_id
    join tallyman_events.events v on v.id = w.event_id;
  v_jobs := array(select j.id from tallyman.enqueue_many(v_work) j order by j.n);
  insert into tallyman_webhooks.dispatches (id, tenant_id, event_id, endpoint_id, job_id, manual)
  select w.delivery, e.tenant_id, w.event_id, e.id, w.job_id, p_manual
    from unnest(v_deliveries, p_events, p_endpoints, v_jobs) as w (delivery, event_id, endpoint_id, job_id)
    join tallyman_webhooks.endpoints e on e.id = w.endpoint_id;
  return v_deliveries;
end $$;

-- Creates deliveries of the events in (p_after, p_up_to] to every endpoint that subscribes to them. Returns how many. Locks
-- the endpoints against removal until the commit; an endpoint removed meanwhile is left out.
--
-- Skips dead letters of deliveries: each failed report would make another dead letter, forever. Pings have their own delivery.
create or replace function tallyman_webhooks.fan_out(p_after bigint, p_up_to bigint) returns integer
language plpgsql as $$
declare
  v_events bigint[];
  v_endpoints bigint[];
begin
  perform 1 from tallyman_webhooks.endpoints e where e.disabled_at is null
     and e.tenant_id in (select v.tenant_id from tallyman_events.events v where v.id > p_after and v.id <= p_up_to)
   order by e.id for key share;
  select array_agg(v.id order by v.id, e.id), array_agg(e.id order by v.id, e.id) into v_events, v_endpoints
    from tallyman_events.events v
    join tallyman_webhooks.endpoints e on e.tenant_id = v.tenant_id
   where v.id > p_after and v.id <= p_up_to and e.disabled_at is null and v.id > e.since
     and tallyman_webhooks.is_subscribed(e.event_types, v.event_type)
     and v.event_type <> 'webhook.ping'
     -- A user has already redelivered it.
     and not exists (select 1 from tallyman_webhooks.dispatches d where d.event_id = v.id and d.endpoint_id = e.id)
     and not (v.event_type = 'job.dead_letter' and v.payload ->> 'kind' = 'webhook.deliver');
  return cardinality(tallyman_webhooks.deliver(coalesce(v_events, '{}'), coalesce(v_endpoints, '{}'), false));
end $$;

-- The events that have a running delivery, or one that may be redriven: the purge keeps them.
create or replace function tallyman_webhooks.needed(p_events bigint[]) returns bigint[]
language sql stable as $$
  select array_agg(distinct d.event_id) from tallyman_webhooks.dispatches d
   where d.event_id = any (p_events)
     and (tallyman.job_exists(d.job_id) or tallyman.dead_letter_exists(d.job_id))
$$;

select tallyman_events.listen('webhooks', 'tallyman_webhooks.needed(bigint[])');
