-- Writing events. docs/decisions/0017-events.md says how readers miss none of them.

-- The id drawn last. Not part of any snapshot: it is always the current value.
create or replace function tallyman_events.position() returns bigint
language sql volatile as $$
  select pg_sequence_last_value('tallyman_events.event_ids'::regclass)
$$;

-- The public id of an event: the id that its emitter gave, or one made from ours.
create or replace function tallyman_events.event_id(p_id bigint, p_key text) returns text
language sql immutable parallel safe as $$
  select coalesce(p_key, 'evt_' || p_id)
$$;

-- The events with this public id: one for each tenant that chose it. Relies on events_by_key.
create or replace function tallyman_events.ids_of(p_event_id text) returns bigint[]
language sql stable as $$
  select case when p_event_id ~ '^evt_[0-9]{1,18}$' then array[substr(p_event_id, 5)::bigint]
              else array(select v.id from tallyman_events.events v where v.event_key = p_event_id) end
$$;

-- Announces that this transaction is about to draw ids: takes a shared lock whose key contains an id below all of them, until
-- the transaction ends. Once per transaction: a lock for each event would fill the lock table. The setting ends with the
-- transaction, or with the savepoint in which the lock was taken, as the lock does.
create or replace function tallyman_events.announce() returns void
language plpgsql volatile as $$
declare
  v_xid constant text := pg_current_xact_id()::text;
begin
  if current_setting('tallyman.emitting', true) is distinct from v_xid then
    perform pg_advisory_xact_lock_shared((29797::bigint << 48) | tallyman_events.position());
    perform set_config('tallyman.emitting', v_xid, true);
    perform tallyman_events.ring();
  end if;
end $$;

-- Wakes the followers that wait for events, when this transaction commits. Each of them holds the lock `waiting` shared, so
-- while all of them are at work nobody is notified. At most one open transaction carries a notification: NOTIFY makes
-- PostgreSQL serialise the commits that carry one, and a notification in each would end group commit. What is missed
-- costs a poll interval.
create or replace function tallyman_events.ring() returns void
language plpgsql volatile as $$
begin
  if pg_try_advisory_lock(29798::bigint << 48) then
    perform pg_advisory_unlock(29798::bigint << 48);
  elsif pg_try_advisory_xact_lock((29798::bigint << 48) + 1) then
    perform pg_notify('tallyman_events', '');
  end if;
end $$;

-- For followers, on a session of their own: until `stop_waiting` they are notified of events.
create or replace function tallyman_events.start_waiting() returns void
language sql volatile as $$
  select pg_advisory_lock_shared(29798::bigint << 48)
$$;

create or replace function tallyman_events.stop_waiting() returns boolean
language sql volatile as $$
  select pg_advisory_unlock_shared(29798::bigint << 48)
$$;

-- Writes events, one for each element of the arrays, in one statement. Returns their ids in that order; null if an event with
-- that key existed already, and nothing was done. Ids are drawn here: if an emitter holds the lock of the row that the event
-- is about, its events are in the order in which they happened.
create or replace function tallyman_events.emit_many(
  event_types text[], aggregate_types text[], aggregate_ids text[], payloads json[], tenant_ids text[],
  event_keys text[] default null, occurred_at timestamptz[] default null
) returns bigint[]
language plpgsql as $$
declare
  v_limit integer := coalesce(nullif(current_setting('tallyman.max_payload_bytes', true), ''), '1048576')::integer;
  v_largest integer;
  v_ids bigint[];
  v_written bigint[];
begin
  if coalesce(cardinality(event_types), 0) = 0 then
    return '{}';
  end if;
  select max(octet_length(p::text)) into v_largest from unnest(payloads) p;
  if v_largest > v_limit then
    raise exception 'payload of % bytes is over the limit of %', v_largest, v_limit
      using errcode = 'TM003', hint = 'Store it elsewhere and pass a reference, or raise tallyman.max_payload_bytes.';
  end if;
  perform tallyman_events.announce();
  v_ids := array(select nextval('tallyman_events.event_ids') from generate_series(1, cardinality(event_types)));
  if event_keys is null then
    insert into tallyman_events.events
      (id, event_type, aggregate_type, aggregate_id, payload, tenant_id, occurred_at)
    select n.id, n.event_type, n.aggregate_type, n.aggregate_id, coalesce(n.payload, 'null'), n.tenant_id,
           coalesce(n.occurred_at, now())
      -- In a select list, `unnest` needs no temporary store for each array.
      from (select unnest(v_ids) as id, unnest(event_types) as event_type, unnest(aggregate_types) as aggregate_type,
                   unnest(aggregate_ids) as aggregate_id, unnest(payloads) as payload, unnest(tenant_ids) as tenant_id,
                   unnest(emit_many.occurred_at) as occurred_at) n;
    return v_ids;
  end if;
  -- In key order: two transactions that write the same keys wait for each other, and never deadlock.
  with written as (
    insert into tallyman_events.events
      (id, event_type, aggregate_type, aggregate_id, payload, tenant_id, event_key, occurred_at)
    select n.id, n.event_type, n.aggregate_type, n.aggregate_id, coalesce(n.payload, 'null'), n.tenant_id, n.event_key,
           coalesce(n.occurred_at, now())
      from unnest(v_ids, event_types, aggregate_types, aggregate_ids, payloads, tenant_ids, event_keys,
                  emit_many.occurred_at)
        as n (id, event_type, aggregate_type, aggregate_id, payload, tenant_id, event_key, occurred_at)
     order by n.event_key collate "C", n.tenant_id collate "C", n.id
    on conflict (event_key, tenant_id) where event_key is not null do nothing
    returning id
  )
  select array_agg(w.id) into v_written from written w;
  return array(select case when i.id = any (v_written) then i.id end
                 from unnest(v_ids) with ordinality as i (id, n) order by i.n);
end $$;

-- Writes one event; for other languages and for triggers. Returns its public id; null if an event with this id existed
-- already, and nothing was done.
create or replace function tallyman_events.emit(
  event_type text,
  aggregate_type text,
  aggregate_id text,
  payload json default '{}',
  tenant_id text default 'default',
  event_id text default null,
  occurred_at timestamptz default now()
) returns text
language plpgsql as $$
declare
  v_ids bigint[] := tallyman_events.emit_many(
    array[event_type], array[aggregate_type], array[aggregate_id], array[payload], array[tenant_id],
    case when event_id is not null then array[event_id] end, array[occurred_at]);
begin
  return case when v_ids[1] is not null then tallyman_events.event_id(v_ids[1], event_id) end;
end $$;
