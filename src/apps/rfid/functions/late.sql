-- The statements that put late reads in their place, in the order processTagReads runs them. The caller has locked the baskets, so
-- their reads and movements stand still; only the deletion of old reads goes on. For the plans see process.sql.
--
-- A basket's reads are ordered by event time, then by content hash. `stale` ones are not part of them.

-- For each read: where the stored reads before and after it were made, what became of the one before, and the tenant's horizon.
-- Relies on processings_of_basket.
create or replace function rfid.reads_beside(p_tenants text[], p_baskets bigint[], p_at timestamptz[], p_hashes text[])
returns table (n bigint, before_location bigint, before_skip text, after_location bigint, forgotten_to numeric)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
  return query
  select w.n, b.location_id, b.skip_reason, a.location_id,
         (select extract(epoch from h.forgotten_to) from rfid.read_horizons h where h.tenant_id = w.tenant_id)
    from unnest(p_tenants, p_baskets, p_at, p_hashes) with ordinality as w (tenant_id, basket_id, at, hash, n)
    left join lateral (
      select rfid.location_of(p) as location_id, p.skip_reason from rfid.tag_read_processings p
       where p.basket_id = w.basket_id and p.error_message is null and p.skip_reason is distinct from 'stale'
         and p.event_timestamp <= w.at and (p.event_timestamp < w.at or p.content_hash < decode(w.hash, 'hex'))
       order by p.event_timestamp desc, p.content_hash desc limit 1) b on true
    left join lateral (
      select rfid.location_of(p) as location_id from rfid.tag_read_processings p
       where p.basket_id = w.basket_id and p.error_message is null and p.skip_reason is distinct from 'stale'
         and p.event_timestamp >= w.at and (p.event_timestamp > w.at or p.content_hash > decode(w.hash, 'hex'))
       order by p.event_timestamp, p.content_hash limit 1) a on true;
end $$;

-- Where a read was made. Rows of version 0.2 do not say; their reader's present place stands for it.
create or replace function rfid.location_of(p rfid.tag_read_processings) returns bigint
language plpgsql stable as $$
begin
  if p.location_id is not null then
    return p.location_id;
  end if;
  return (select d.location_id from iot.devices d where d.tenant_id = p.tenant_id and d.serial = p.device_id);
end $$;

-- The reads of each basket from `p_from` on, at most `p_limit` of each, with the movement that each made or repeats. `p_after`: only
-- those behind the read of that time with this hash. Relies on processings_of_basket and movements_pkey.
create or replace function rfid.reads_from(p_baskets bigint[], p_from timestamptz[], p_after text[], p_limit integer)
returns table (n bigint, id bigint, at numeric, content_hash text, location_id bigint, device_id text, at_return_door boolean,
               skip_reason text, movement_id bigint, moved_from bigint, moved_to bigint, moved_at numeric,
               window_start numeric, repeats integer, last_at numeric)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
  return query
  select w.n, r.id, extract(epoch from r.event_timestamp), encode(r.content_hash, 'hex'), r.place_id, r.device_id,
         r.at_return_door, r.skip_reason, m.id, m.from_location_id, m.to_location_id, extract(epoch from m.event_timestamp),
         extract(epoch from m.window_start), m.repeats, extract(epoch from m.last_at)
    from unnest(p_baskets, p_from, p_after) with ordinality as w (basket_id, at, hash, n),
         lateral (
           select p.*, rfid.location_of(p) as place_id from rfid.tag_read_processings p
            where p.basket_id = w.basket_id and p.error_message is null and p.skip_reason is distinct from 'stale'
              and p.event_timestamp >= w.at
              and (w.hash is null or p.event_timestamp > w.at or p.content_hash > decode(w.hash, 'hex'))
            order by p.event_timestamp, p.content_hash limit p_limit) r
    left join lateral (select m.* from rfid.movements m where m.id = r.movement_id offset 0) m on true
   order by w.n, r.event_timestamp, r.content_hash;
end $$;

-- The movements of each basket that a read at or after `p_at` may repeat (those after `p_since`), and always the last one before
-- `p_at`. `last_before`: its last repetition before `p_at`, if it has others behind. Relies on movements_once.
create or replace function rfid.movements_before(
  p_baskets bigint[], p_at timestamptz[], p_since timestamptz[], p_windows_since timestamptz[])
returns table (n bigint, movement_id bigint, moved_from bigint, moved_to bigint, moved_at numeric, window_start numeric,
               repeats integer, last_at numeric, last_before numeric)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
  return query
  select w.n, m.id, m.from_location_id, m.to_location_id, extract(epoch from m.event_timestamp),
         extract(epoch from m.window_start), m.repeats, extract(epoch from m.last_at),
         case when m.last_at >= w.at then
           (select extract(epoch from max(p.event_timestamp)) from rfid.tag_read_processings p
             where p.basket_id = w.basket_id and p.error_message is null and p.movement_id = m.id
               and p.skip_reason = 'same movement' and p.event_timestamp > m.event_timestamp and p.event_timestamp < w.at) end
    from unnest(p_baskets, p_at, p_since, p_windows_since) with ordinality as w (basket_id, at, since, windows_since, n),
         lateral (
           select k.* from rfid.movements k
            where k.basket_id = w.basket_id and k.window_start >= w.windows_since and k.window_start <= w.at
              and k.event_timestamp > w.since and k.event_timestamp < w.at
           union
           (select k.* from rfid.movements k
             where k.basket_id = w.basket_id and k.window_start <= w.at and k.event_timestamp < w.at
             order by k.window_start desc, k.event_timestamp desc limit 1)) m
   order by w.n, m.event_timestamp, m.id;
end $$;

-- The horizon of each tenant that has one.
create or replace function rfid.horizons(p_tenants text[]) returns table (tenant_id text, forgotten_to numeric)
language sql stable as $$
  select h.tenant_id, extract(epoch from h.forgotten_to) from rfid.read_horizons h where h.tenant_id = any (p_tenants)
$$;

-- Withdraws movements and changes others. What was told of one that goes, or that gets another `from`, is kept for those who were
-- told (relies on movement_corrections_by_movement). A changed one is deleted and written again under its id: updates in place
-- could meet the key of one that is to change as well.
create or replace function rfid.correct_movements(
  p_gone bigint[], p_changed bigint[], p_from bigint[], p_windows timestamptz[], p_repeats integer[], p_last_at timestamptz[]
) returns void
language plpgsql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
declare
  v_old rfid.movements[];
begin
  if cardinality(p_gone) > 0 then
    insert into rfid.movement_corrections
      (movement_id, corrects, basket_id, was_from_location_id, is_withdrawn, to_location_id, event_timestamp, recorded_at, device_id,
       tenant_id)
    select m.id, coalesce((select max(c.id) from rfid.movement_corrections c where c.movement_id = m.id), m.id), m.basket_id,
           m.from_location_id, true, m.to_location_id, m.event_timestamp, m.created_at, m.device_id, m.tenant_id
      from rfid.movements m where m.id = any (p_gone);
    delete from rfid.movements m where m.id = any (p_gone);
  end if;
  -- Most changes are a count.
  update rfid.movements m set repeats = c.repeats, last_at = c.last_at
    from unnest(p_changed, p_from, p_windows, p_repeats, p_last_at) as c (id, from_id, window_start, repeats, last_at)
   where m.id = c.id and m.from_location_id is not distinct from c.from_id and m.window_start = c.window_start;
  with old as (
    delete from rfid.movements m
     using unnest(p_changed, p_from, p_windows) as c (id, from_id, window_start)
     where m.id = c.id and (m.from_location_id is distinct from c.from_id or m.window_start <> c.window_start)
    returning m)
  select array_agg(o.m) into v_old from old o;
  if v_old is null then
    return;
  end if;
  insert into rfid.movement_corrections
    (movement_id, corrects, basket_id, was_from_location_id, from_location_id, is_withdrawn, to_location_id, event_timestamp,
     recorded_at, device_id, tenant_id)
  select o.id, coalesce((select max(c.id) from rfid.movement_corrections c where c.movement_id = o.id), o.id), o.basket_id,
         o.from_location_id, n.from_id, false, o.to_location_id, o.event_timestamp, o.created_at, o.device_id, o.tenant_id
    from unnest(v_old) o join unnest(p_changed, p_from) as n (id, from_id) on n.id = o.id
   where o.from_location_id is distinct from n.from_id;
  insert into rfid.movements
    (id, basket_id, from_location_id, to_location_id, event_timestamp, window_start, created_at, device_id, repeats, last_at,
     tenant_id)
  select o.id, o.basket_id, c.from_id, o.to_location_id, o.event_timestamp, c.window_start, o.created_at, o.device_id,
         c.repeats, c.last_at, o.tenant_id
    from unnest(v_old) o
    join unnest(p_changed, p_from, p_windows, p_repeats, p_last_at) as c (id, from_id, window_start, repeats, last_at)
      on c.id = o.id;
end $$;

-- What became of earlier reads, now that others were put between them.
create or replace function rfid.judge_again(p_reads bigint[], p_movements bigint[], p_skips text[]) returns void
language sql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
  update rfid.tag_read_processings p set movement_id = j.movement_id, skip_reason = j.skip_reason
    from unnest(p_reads, p_movements, p_skips) as j (id, movement_id, skip_reason) where p.id = j.id
$$;

-- The state of baskets whose reads were put in order: all of it, because a last movement may have gone.
create or replace function rfid.place_baskets(
  p_ids bigint[], p_locations bigint[], p_places bigint[], p_first_at timestamptz[], p_last_at timestamptz[], p_devices text[],
  p_movements bigint[]
) returns void
language sql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
  update rfid.baskets b
     set location_id = s.location_id, place_id = s.place_id, first_seen_at = least(b.first_seen_at, s.first_at),
         last_seen_at = s.last_at, last_device_id = coalesce(s.device_id, b.last_device_id),
         movement_id = m.id, moved_from = m.from_location_id, moved_to = m.to_location_id, moved_at = m.event_timestamp
    from unnest(p_ids, p_locations, p_places, p_first_at, p_last_at, p_devices, p_movements)
           as s (id, location_id, place_id, first_at, last_at, device_id, movement_id)
    left join lateral (select k.* from rfid.movements k where k.id = s.movement_id offset 0) m on true
   where b.id = s.id
$$;
