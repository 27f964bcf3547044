-- Which events an endpoint wants. filter.ts checks filters before they are stored; docs/webhooks.md explains them.
--
-- A filter is an array of conditions {"path": ["to", "zone"], "op": "equals", "value": "dock-3"}, all of which must hold.
-- Nothing in here may fail: one event or one filter must not keep the fan-out from going on for everybody else. A payload
-- that PostgreSQL cannot read (\u0000 in a text, a number beyond numeric) matches no filter.

create or replace function tallyman_webhooks.is_subscribed(p_patterns text[], p_event_type text) returns boolean
language sql immutable as $$
  select exists (select 1 from unnest(p_patterns) p
                  where p = '*' or p = p_event_type
                     or (right(p, 2) = '.*' and starts_with(p_event_type, left(p, -1))))
$$;

-- A payload in the form that conditions read; null if PostgreSQL cannot read it. To parse 1 MB takes longer than to look at it
-- through many filters: callers do this once for each event.
create or replace function tallyman_webhooks.readable(p_payload json) returns jsonb
language plpgsql immutable as $$
begin
  return p_payload::jsonb;
exception when others then
  return null;
end $$;

-- p_value: what is at the condition's path; null if there is nothing. Values that conditions compare with are no lists or objects.
create or replace function tallyman_webhooks.holds(p_op text, p_wanted jsonb, p_value jsonb) returns boolean
language plpgsql immutable as $$
begin
  if p_op = 'exists' then
    return (p_value is not null) = p_wanted::boolean;
  elsif p_value is null then
    return false;
  elsif p_op = 'equals' then
    return p_value = p_wanted;
  elsif p_op = 'in' then
    return jsonb_typeof(p_value) not in ('array', 'object') and p_wanted @> p_value;
  elsif p_op = 'prefix' then
    return jsonb_typeof(p_value) = 'string' and starts_with(p_value #>> '{}', p_wanted #>> '{}');
  elsif jsonb_typeof(p_value) <> 'number' then
    return false;
  end if;
  return case p_op
    when 'gt' then p_value::numeric > p_wanted::numeric
    when 'gte' then p_value::numeric >= p_wanted::numeric
    when 'lt' then p_value::numeric < p_wanted::numeric
    when 'lte' then p_value::numeric <= p_wanted::numeric
    else false end;
end $$;

-- p_payload: what `readable` returns.
create or replace function tallyman_webhooks.matches(p_filter jsonb, p_payload jsonb) returns boolean
language plpgsql immutable as $$
declare
  v_condition jsonb;
begin
  if p_payload is null then
    return false;
  end if;
  for v_condition in select c from jsonb_array_elements(p_filter) c loop
    if not tallyman_webhooks.holds(
      v_condition ->> 'op', v_condition -> 'value',
      p_payload #> array(select jsonb_array_elements_text(v_condition -> 'path')))
    then
      return false;
    end if;
  end loop;
  return true;
exception when others then
  return false;
end $$;

-- Whether each endpoint's filter lets the payload through. Parses the payload once.
create or replace function tallyman_webhooks.matching(p_payload json, p_endpoints bigint[]) returns boolean[]
language plpgsql stable as $$
declare
  v_payload constant jsonb := tallyman_webhooks.readable(p_payload);
begin
  return array(
    select coalesce(e.filter is null or tallyman_webhooks.matches(e.filter, v_payload), false)
      from unnest(p_endpoints) with ordinality as w (id, n)
      left join tallyman_webhooks.endpoints e on e.id = w.id order by w.n);
end $$;

-- Events that an endpoint never gets, whatever it subscribes to: pings have their own delivery; a report that it is disabled
-- would go to the endpoint that is; dead letters of deliveries would make more dead letters, forever.
create or replace function tallyman_webhooks.is_kept_from(
  p_endpoint bigint, p_event_type text, p_aggregate_id text, p_payload json
) returns boolean
language plpgsql immutable as $$
begin
  return case p_event_type
    when 'webhook.ping' then true
    when 'webhook.endpoint.disabled' then p_aggregate_id = p_endpoint::text
    when 'job.dead_letter' then coalesce(p_payload ->> 'kind' = 'webhook.deliver', false)
    else false end;
exception when others then
  return false;
end $$;
