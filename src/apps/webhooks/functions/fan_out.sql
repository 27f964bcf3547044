-- Turns events into deliveries. Only the follower's transaction runs this, and one of them at a time.
--
-- It waits for nobody: a delivery whose lane or endpoint another open transaction has locked is put into held_back, and is
-- made by a later call. One tenant's long transaction would otherwise hold up the deliveries of all.

-- A lane key has at most 256 bytes; an aggregate with a longer name gets a digest of it.
create or replace function tallyman_webhooks.lane_of(p_endpoint bigint, p_type text, p_id text) returns text
language sql immutable as $$
  select case when octet_length(full_key) <= 256 then full_key
              else 'endpoint:' || p_endpoint || ':sha256:' || encode(sha256(convert_to(full_key, 'UTF8')), 'hex') end
    from (select 'endpoint:' || p_endpoint || ':' || p_type || ':' || p_id) k (full_key)
$$;

-- Creates deliveries and their jobs, one for each element of the arrays, which name existing events and endpoints. Returns
-- the delivery ids in that order. Jobs of ordered endpoints get a lane for each aggregate; the engine locks lanes in one order.
-- Without p_wait, deliveries in a lane that another transaction writes into are left out, and their ids are null.
create or replace function tallyman_webhooks.dispatch(
  p_events bigint[], p_endpoints bigint[], p_manual boolean, p_wait boolean
) returns uuid[]
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
  if p_wait then
    v_jobs := array(select j.id from tallyman.enqueue_many(v_work) j order by j.n);
  else
    v_jobs := array(select j.id from tallyman.try_enqueue_many(v_work) j order by j.n);
  end if;
  insert into tallyman_webhooks.dispatches (id, tenant_id, event_id, endpoint_id, job_id, manual)
  select w.delivery, e.tenant_id, w.event_id, e.id, w.job_id, p_manual
    from unnest(v_deliveries, p_events, p_endpoints, v_jobs) as w (delivery, event_id, endpoint_id, job_id)
    join tallyman_webhooks.endpoints e on e.id = w.endpoint_id
   where w.job_id is not null;
  return array(select case when w.job_id is not null then w.delivery end
                 from unnest(v_deliveries, v_jobs) with ordinality as w (delivery, job_id, n) order by w.n);
end $$;

create or replace function tallyman_webhooks.deliver(p_events bigint[], p_endpoints bigint[], p_manual boolean) returns uuid[]
language sql as $$
  select tallyman_webhooks.dispatch(p_events, p_endpoints, p_manual, true)
$$;

-- The pairs of the arrays whose delivery could be made are gone from held_back afterwards; the others are in it. Returns how
-- many were made.
create or replace function tallyman_webhooks.dispatch_or_hold(p_events bigint[], p_endpoints bigint[]) returns integer
language plpgsql as $$
declare
  v_deliveries uuid[];
begin
  begin
    v_deliveries := tallyman_webhooks.dispatch(p_events, p_endpoints, false, false);
  exception when lock_not_available then
    -- A lane that is being made in another open transaction.
    v_deliveries := array(select null::uuid from unnest(p_events));
  end;
  delete from tallyman_webhooks.held_back h
   using unnest(p_events, p_endpoints, v_deliveries) as w (event_id, endpoint_id, delivery)
   where h.endpoint_id = w.endpoint_id and h.event_id = w.event_id and w.delivery is not null;
  perform tallyman_webhooks.hold_back(
    array(select w.event_id from unnest(p_events, v_deliveries) with ordinality as w (event_id, delivery, n)
           where w.delivery is null order by w.n),
    array(select w.endpoint_id from unnest(p_endpoints, v_deliveries) with ordinality as w (endpoint_id, delivery, n)
           where w.delivery is null order by w.n));
  return (select count(*) from unnest(v_deliveries) d where d is not null);
end $$;

create or replace function tallyman_webhooks.hold_back(p_events bigint[], p_endpoints bigint[]) returns void
language sql as $$
  insert into tallyman_webhooks.held_back (endpoint_id, event_id, tenant_id, lane)
  select e.id, v.id, v.tenant_id,
         case when e.ordered then tallyman_webhooks.lane_of(e.id, v.aggregate_type, v.aggregate_id) end
    from unnest(p_events, p_endpoints) as w (event_id, endpoint_id)
    join tallyman_webhooks.endpoints e on e.id = w.endpoint_id
    join tallyman_events.events v on v.id = w.event_id
  on conflict (endpoint_id, event_id) do nothing
$$;

-- Makes deliveries that were held back, as far as they can be made now: endpoint by endpoint, oldest first. Returns how many.
create or replace function tallyman_webhooks.release_held(p_most integer default 2000) returns integer
language plpgsql as $$
declare
  v_endpoint record;
  v_events bigint[];
  v_made integer := 0;
begin
  if not exists (select 1 from tallyman_webhooks.held_back) then
    return 0;
  end if;
  delete from tallyman_webhooks.held_back h
   where not exists (select 1 from tallyman_webhooks.endpoints e where e.id = h.endpoint_id);
  for v_endpoint in
    select e.id from tallyman_webhooks.endpoints e
     where exists (select 1 from tallyman_webhooks.held_back h where h.endpoint_id = e.id)
     order by e.id for key share skip locked
  loop
    select array_agg(o.event_id order by o.event_id) into v_events
      from (select h.event_id from tallyman_webhooks.held_back h
             where h.endpoint_id = v_endpoint.id order by h.event_id limit p_most) o;
    v_made := v_made + tallyman_webhooks.dispatch_or_hold(
      v_events, array(select v_endpoint.id from unnest(v_events)));
    exit when v_made >= p_most;
  end loop;
  return v_made;
end $$;

-- Creates deliveries of the events in (p_after, p_up_to] to every endpoint that wants them. Returns how many. Locks the
-- endpoints against removal until the commit; an endpoint removed meanwhile is left out.
create or replace function tallyman_webhooks.fan_out(p_after bigint, p_up_to bigint) returns integer
language plpgsql as $$
declare
  v_any_held constant boolean := exists (select 1 from tallyman_webhooks.held_back);
  v_locked bigint[];
  v_events bigint[];
  v_endpoints bigint[];
  v_held_events bigint[];
  v_held_endpoints bigint[];
  v_ordered_events bigint[];
  v_ordered_endpoints bigint[];
  v_made integer;
begin
  v_locked := array(
    select e.id from tallyman_webhooks.endpoints e
     where e.disabled_at is null
       and e.tenant_id in (select v.tenant_id from tallyman_events.events v where v.id > p_after and v.id <= p_up_to)
     order by e.id for key share skip locked);
  -- Subscriptions are matched once for each type, not for each event. Filters are not gathered with them: they are large.
  with event as materialized (
    select v.id, v.tenant_id, v.event_type, v.aggregate_type, v.aggregate_id, v.payload
      from tallyman_events.events v where v.id > p_after and v.id <= p_up_to
  ), subscribers as materialized (
    select t.tenant_id, t.event_type, array_agg(e.id order by e.id) as ids, array_agg(e.since order by e.id) as since,
           array_agg(e.ordered order by e.id) as ordered, bool_or(e.filter is not null) as any_filter
      from (select distinct v.tenant_id, v.event_type from event v) t
      join tallyman_webhooks.endpoints e on e.tenant_id = t.tenant_id
     where e.disabled_at is null and tallyman_webhooks.is_subscribed(e.event_types, t.event_type)
     group by t.tenant_id, t.event_type
  ), pair as (
    select v.id as event_id, s.id as endpoint_id, s.ordered,
           s.id = any (v_locked)
             and not (v_any_held and s.ordered and exists (
               select 1 from tallyman_webhooks.held_back h
                where h.endpoint_id = s.id
                  and h.lane = tallyman_webhooks.lane_of(s.id, v.aggregate_type, v.aggregate_id))) as is_free
      from event v
      join subscribers a on a.tenant_id = v.tenant_id and a.event_type = v.event_type
     cross join lateral unnest(
       a.ids, a.since, a.ordered, case when a.any_filter then tallyman_webhooks.matching(v.payload, a.ids) end
     ) as s (id, since, ordered, is_match)
     where v.id > s.since and s.is_match is not false
       and (v.event_type not in ('webhook.ping', 'webhook.endpoint.disabled', 'job.dead_letter')
            or not tallyman_webhooks.is_kept_from(s.id, v.event_type, v.aggregate_id, v.payload))
       -- It was set aside, or fanned out by an older release after a user had redelivered it.
       and not exists (select 1 from tallyman_webhooks.dispatches d where d.event_id = v.id and d.endpoint_id = s.id)
  )
  select array_agg(p.event_id order by p.event_id, p.endpoint_id) filter (where p.is_free and not p.ordered),
         array_agg(p.endpoint_id order by p.event_id, p.endpoint_id) filter (where p.is_free and not p.ordered),
         array_agg(p.event_id order by p.event_id, p.endpoint_id) filter (where p.is_free and p.ordered),
         array_agg(p.endpoint_id order by p.event_id, p.endpoint_id) filter (where p.is_free and p.ordered),
         array_agg(p.event_id order by p.event_id, p.endpoint_id) filter (where not p.is_free),
         array_agg(p.endpoint_id order by p.event_id, p.endpoint_id) filter (where not p.is_free)
    into v_events, v_endpoints, v_ordered_events, v_ordered_endpoints, v_held_events, v_held_endpoints
    from pair p;
  perform tallyman_webhooks.hold_back(v_held_events, v_held_endpoints);
  v_made := cardinality(tallyman_webhooks.deliver(coalesce(v_events, '{}'), coalesce(v_endpoints, '{}'), false));
  if v_ordered_events is not null then
    v_made := v_made + tallyman_webhooks.dispatch_or_hold(v_ordered_events, v_ordered_endpoints);
  end if;
  return v_made;
end $$;

-- The events that have a running delivery, or one that may be redriven, or are held back: the purge keeps them.
create or replace function tallyman_webhooks.needed(p_events bigint[]) returns bigint[]
language sql stable as $$
  select array_agg(n.event_id)
    from (select d.event_id from tallyman_webhooks.dispatches d
           where d.event_id = any (p_events)
             and (tallyman.job_exists(d.job_id) or tallyman.dead_letter_exists(d.job_id))
          union
          select h.event_id from tallyman_webhooks.held_back h where h.event_id = any (p_events)) n
$$;

select tallyman_events.listen('webhooks', 'tallyman_webhooks.needed(bigint[])');
