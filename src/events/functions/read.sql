-- Reads events in the order of their ids, without missing any that commits late.

-- Up to here the events are complete: every transaction that drew a smaller id has ended.
--
-- This relies on the order of the two reads. A transaction that holds the lock has ids above the number in its key. One
-- that takes the lock after the second read draws its ids after the first. One that held it before has ended, and its
-- events are visible to the next statement, but not to this one: read the events in a separate statement.
create or replace function tallyman_events.horizon() returns bigint
language plpgsql volatile as $$
declare
  v_last constant bigint := tallyman_events.position();
begin
  return least(v_last, (
    select min((l.classid::bigint & 65535) << 32 | l.objid::bigint) from pg_locks l
     where l.locktype = 'advisory' and l.objsubid = 1 and l.classid::bigint >> 16 = 29797
       and l.database = (select d.oid from pg_database d where d.datname = current_database())));
end $$;

-- How long the oldest transaction that holds up readers at its events has been open, in seconds, and whose it is. No row if
-- there is none. PostgreSQL shows the details of other users' sessions to members of pg_read_all_stats only.
create or replace function tallyman_events.horizon_age() returns table (seconds double precision, pid integer, application text)
language sql volatile as $$
  select coalesce(extract(epoch from clock_timestamp() - a.xact_start), 0)::double precision, l.pid, a.application_name
    from pg_locks l left join pg_stat_activity a on a.pid = l.pid
   where l.locktype = 'advisory' and l.objsubid = 1 and l.classid::bigint >> 16 = 29797
     and l.database = (select d.oid from pg_database d where d.datname = current_database())
   order by a.xact_start nulls last limit 1
$$;

-- The end of a read that begins after p_after: the horizon, or the position of p_most events. The next statement may read all
-- events in between. p_tenant null counts those of all tenants. Relies on events_of_tenant and the primary key.
create or replace function tallyman_events.reach(p_after bigint, p_most integer, p_tenant text default null) returns bigint
language plpgsql volatile as $$
declare
  v_horizon bigint;
  v_end bigint;
begin
  -- A snapshot taken before the horizon may miss events below the horizon.
  if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
    raise exception 'events are read in transactions that are READ COMMITTED, not %',
      upper(current_setting('transaction_isolation')) using errcode = 'TM002';
  end if;
  v_horizon := tallyman_events.horizon();
  if p_tenant is null then
    select v.id into v_end from tallyman_events.events v
     where v.id > p_after and v.id <= v_horizon order by v.id offset p_most - 1 limit 1;
  else
    select v.id into v_end from tallyman_events.events v
     where v.tenant_id = p_tenant and v.id > p_after and v.id <= v_horizon
     order by v.tenant_id, v.id offset p_most - 1 limit 1;
  end if;
  return coalesce(v_end, greatest(p_after, v_horizon));
end $$;

-- Creates a listener that follows from now on. Does nothing if it exists already.
create or replace function tallyman_events.listen(p_name text, p_needs regprocedure default null) returns void
language sql as $$
  insert into tallyman_events.listeners (name, cursor, needs) values (p_name, tallyman_events.horizon(), p_needs)
  on conflict (name) do nothing
$$;

-- Forgets a listener: events are no longer kept for it.
create or replace function tallyman_events.stop_listening(p_name text) returns void
language sql as $$
  delete from tallyman_events.set_aside s where s.listener = p_name;
  delete from tallyman_events.listeners l where l.name = p_name
$$;

-- Whether there may be events after the listener's cursor, or one that was set aside is due: one lookup in an index each.
create or replace function tallyman_events.has_news(p_listener text) returns boolean
language sql stable as $$
  select exists (select 1 from tallyman_events.events v
                  where v.id > (select l.cursor from tallyman_events.listeners l where l.name = p_listener))
      or tallyman_events.due_again(p_listener) is not null
$$;

-- The listener has handled every event up to here, but for those that are set aside. Tenants may ask, though they may not read
-- the table: the answer says nothing about any tenant.
create or replace function tallyman_events.passed(p_listener text) returns bigint
language sql stable security definer set search_path = '' as $$
  select l.cursor from tallyman_events.listeners l where l.name = p_listener
$$;

-- Goes on without an event that the listener could not handle. It is tried again after a minute, then less and less often.
create or replace function tallyman_events.put_aside(p_listener text, p_event bigint, p_error text) returns void
language sql as $$
  insert into tallyman_events.set_aside as s (listener, event_id, error, retry_at)
  values (p_listener, p_event, left(p_error, 2000), clock_timestamp() + interval '1 minute')
  on conflict (listener, event_id) do update
     set tries = s.tries + 1, error = excluded.error,
         retry_at = clock_timestamp() + least(interval '1 hour', interval '1 minute' * 2 ^ least(s.tries, 10))
$$;

-- The event that was set aside and is due first; null: none. Relies on set_aside_due.
create or replace function tallyman_events.due_again(p_listener text) returns bigint
language sql stable as $$
  select s.event_id from tallyman_events.set_aside s
   where s.listener = p_listener and s.retry_at <= clock_timestamp() order by s.retry_at limit 1
$$;

-- How far each listener is behind: the age of the oldest event that it has not handled, and how many are set aside.
create or replace function tallyman_events.lag()
returns table (listener text, seconds double precision, set_aside bigint)
language sql volatile as $$
  select l.name,
         coalesce(extract(epoch from clock_timestamp() - (
           select v.created_at from tallyman_events.events v where v.id > l.cursor order by v.id limit 1)), 0)::double precision,
         (select count(*) from tallyman_events.set_aside s where s.listener = l.name)
    from tallyman_events.listeners l
$$;

-- Deletes old events, unless a listener has not passed them or still needs them. Checks p_limit events after p_after;
-- `last` is where the next call continues, null at the end of the old events.
create or replace function tallyman_events.purge(p_keep interval, p_after bigint, p_limit integer)
returns table (gone integer, last bigint)
language plpgsql as $$
declare
  v_passed bigint;
  v_ids bigint[];
  v_seen integer;
  v_needed bigint[];
  v_listener record;
begin
  select least(min(l.cursor), tallyman_events.horizon()) into v_passed from tallyman_events.listeners l;
  select array_agg(o.id order by o.id) filter (where o.is_old), count(*), max(o.id) filter (where o.is_old)
    into v_ids, v_seen, last
    from (select v.id, v.created_at < now() - p_keep as is_old from tallyman_events.events v
           where v.id > p_after and v.id <= v_passed order by v.id limit p_limit) o;
  if v_seen < p_limit or last is distinct from v_ids[v_seen] then
    last := null;
  end if;
  for v_listener in select l.needs from tallyman_events.listeners l where l.needs is not null loop
    execute format('select %s($1)', v_listener.needs::regproc) into v_needed using v_ids;
    v_ids := array(select i from unnest(v_ids) i where i <> all (coalesce(v_needed, '{}')));
  end loop;
  v_ids := array(select i from unnest(v_ids) i
                  where not exists (select 1 from tallyman_events.set_aside s where s.event_id = i));
  delete from tallyman_events.events v where v.id = any (v_ids);
  get diagnostics gone = row_count;
  return next;
end $$;
