-- The statements of processTagReads, in the order it runs them. They are functions so that a session plans them once.
--
-- A plan made while a table was empty must still be good at a million rows. A join is not: next to an empty table, the
-- wrong join looks best. So each row looks up what it needs, by a lateral subquery that cannot be flattened
-- (`offset 0`, or a lock in it), or by a nested loop where the other plans are switched off.
--
-- Where every read passes, arrays are unnested in a select list. In FROM, PostgreSQL first copies each array into a temporary
-- store of its own: four times the processor time.

-- Creates the missing baskets and locks all of them until the caller's transaction ends.
--
-- Both steps go in key order, new baskets first, so transactions cannot deadlock: one that waits for a new basket holds
-- only smaller new ones. One that waits for an old basket holds only smaller old ones and its own new ones, which no
-- transaction that waits for an old basket can see. Relies on baskets_by_epc.
--
-- `recent` lists the movements that a read may repeat, as `id,from,to,seconds` with `;` between, and `n` for a `from` of null:
-- those since `p_since` to the place where the basket is seen (`p_locations`; null: at several), if it was elsewhere. Relies on
-- movements_once.
create or replace function rfid.lock_baskets(
  p_tenants text[], p_epcs text[], p_uris text[], p_locations bigint[], p_since timestamptz[], p_windows_since timestamptz[])
returns table (n integer, id bigint, location_id bigint, place_id bigint, last_seen_at numeric,
               movement_id bigint, moved_at numeric, recent text)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_n integer[]; v_ids bigint[]; v_locations bigint[]; v_places bigint[]; v_seen timestamptz[]; v_movements bigint[];
  v_moved timestamptz[]; v_to bigint[]; v_since timestamptz[]; v_windows timestamptz[];
begin
  insert into rfid.baskets (tenant_id, epc_hex, epc_uri)
  select w.tenant_id, w.epc_hex, w.epc_uri
    from (select unnest(p_tenants) as tenant_id, unnest(p_epcs) as epc_hex, unnest(p_uris) as epc_uri) w
   where not exists (select 1 from rfid.baskets b
                      where b.tenant_id = w.tenant_id and b.epc_hex = w.epc_hex offset 0)
   order by w.tenant_id collate "C", w.epc_hex collate "C"
  on conflict do nothing;
  -- A separate statement: its snapshot is taken after the wait, so it sees baskets that others created meanwhile.
  select array_agg(w.n), array_agg(b.id), array_agg(b.location_id), array_agg(b.place_id), array_agg(b.last_seen_at),
         array_agg(b.movement_id), array_agg(b.moved_at), array_agg(w.location_id), array_agg(w.since), array_agg(w.windows_since)
    into v_n, v_ids, v_locations, v_places, v_seen, v_movements, v_moved, v_to, v_since, v_windows
    from (select u.* from (select generate_subscripts(p_epcs, 1) as n, unnest(p_tenants) as tenant_id, unnest(p_epcs) as epc_hex,
                                  unnest(p_locations) as location_id, unnest(p_since) as since,
                                  unnest(p_windows_since) as windows_since) u
           order by u.tenant_id collate "C", u.epc_hex collate "C") w,
         lateral (select b.* from rfid.baskets b
                   where b.tenant_id = w.tenant_id and b.epc_hex = w.epc_hex
                     for no key update) b;
  -- And another: a basket that was waited for is read as it is now, but its movements would be those of the snapshot before the wait.
  return query
  select l.n, l.id, l.location_id, l.place_id, extract(epoch from l.seen_at), l.movement_id, extract(epoch from l.moved_at),
         case when l.moved_at > l.since and l.location_id is distinct from l.to_id then
           (select string_agg(concat_ws(',', m.id, coalesce(m.from_location_id::text, 'n'), m.to_location_id,
                                        extract(epoch from m.event_timestamp)), ';')
              from rfid.movements m
             where m.basket_id = l.id and m.window_start >= l.windows_since and m.event_timestamp > l.since
               and (l.to_id is null or m.to_location_id = l.to_id)) end
    from (select unnest(v_n) as n, unnest(v_ids) as id, unnest(v_locations) as location_id, unnest(v_places) as place_id,
                 unnest(v_seen) as seen_at, unnest(v_movements) as movement_id, unnest(v_moved) as moved_at, unnest(v_to) as to_id,
                 unnest(v_since) as since, unnest(v_windows) as windows_since) l;
end $$;

-- Which of these reads have been processed, by either key. Exact only for reads whose baskets the caller has locked:
-- the same read always has the same basket, so no other transaction can be processing it now.
-- Relies on processings_by_content and processings_by_tag_read.
create or replace function rfid.processed(p_tenants text[], p_hashes text[], p_tag_reads bigint[])
returns table (n bigint, basket_id bigint, movement_id bigint)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
  return query
  select w.n, p.basket_id, p.movement_id
    from unnest(p_tenants, p_hashes) with ordinality as w (tenant_id, content_hash, n),
         lateral (select p.basket_id, p.movement_id from rfid.tag_read_processings p
                   where p.tenant_id = w.tenant_id and p.content_hash = decode(w.content_hash, 'hex')
                     and p.error_message is null offset 0) p;
  if p_tag_reads is not null then
    return query
    select w.n, p.basket_id, p.movement_id
      from unnest(p_tenants, p_tag_reads) with ordinality as w (tenant_id, zb_tag_read_id, n),
           lateral (select p.basket_id, p.movement_id from rfid.tag_read_processings p
                     where p.tenant_id = w.tenant_id and p.zb_tag_read_id = w.zb_tag_read_id
                       and p.error_message is null offset 0) p;
  end if;
end $$;

-- Writes a decision: movements, the new state of baskets, and a row for each read that is no duplicate. Returns the ids of
-- the movements, in order. The types are in migrations/0004_movements_by_event_time.sql.
create or replace function rfid.save(m rfid.new_movements, b rfid.seen_baskets, r rfid.new_reads) returns bigint[]
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
  v_ids bigint[] := '{}';
begin
  if cardinality(m.baskets) > 0 then
    v_ids := rfid.save_movements(m);
    perform rfid.tell_new_movements(m, v_ids);
  end if;
  perform rfid.save_baskets(b, m, v_ids);
  perform rfid.save_reads(r, v_ids);
  return v_ids;
end $$;

create or replace function rfid.save_movements(m rfid.new_movements) returns bigint[]
language plpgsql as $$
declare
  v_ids bigint[] := array(select nextval('rfid.movement_ids') from generate_series(1, cardinality(m.baskets)));
begin
  insert into rfid.movements
    (id, basket_id, from_location_id, to_location_id, event_timestamp, window_start, device_id, repeats, last_at, tenant_id)
  select n.id, n.basket_id, n.from_id, n.to_id, n.at, n.window_start, n.device_id, coalesce(n.repeats, 0), n.last_at, n.tenant_id
    from (select unnest(v_ids) as id, unnest(m.baskets) as basket_id, unnest(m.from_locations) as from_id,
                 unnest(m.to_locations) as to_id, unnest(m.at) as at, unnest(m.windows) as window_start,
                 unnest(m.devices) as device_id, unnest(m.repeats) as repeats, unnest(m.last_at) as last_at,
                 unnest(m.tenants) as tenant_id) n;
  return v_ids;
end $$;

-- Of baskets that were seen in order. Joins by the primary key, row by row: rfid.save has switched the other plans off.
create or replace function rfid.save_baskets(b rfid.seen_baskets, m rfid.new_movements, p_ids bigint[]) returns void
language plpgsql as $$
begin
  update rfid.baskets o
     set location_id = s.location_id, last_seen_at = s.last_at, first_seen_at = least(o.first_seen_at, s.first_at),
         last_device_id = s.device_id, movement_id = coalesce(p_ids[s.move], o.movement_id),
         moved_from = case when s.move is null then o.moved_from else m.from_locations[s.move] end,
         moved_to = coalesce(m.to_locations[s.move], o.moved_to), moved_at = coalesce(m.at[s.move], o.moved_at)
    from (select unnest(b.ids) as id, unnest(b.locations) as location_id, unnest(b.first_at) as first_at,
                 unnest(b.last_at) as last_at, unnest(b.devices) as device_id, unnest(b.moves) as move) s
   where o.id = s.id;
end $$;

create or replace function rfid.save_reads(r rfid.new_reads, p_ids bigint[]) returns void
language plpgsql as $$
begin
  insert into rfid.tag_read_processings
    (tenant_id, zb_tag_read_id, content_hash, processor_type, event_timestamp, basket_id, movement_id, epc_hex,
     device_id, location_id, at_return_door, is_new_basket, skip_reason)
  select n.tenant_id, n.zb_tag_read_id, n.content_hash, n.processor_type, n.event_timestamp, n.basket_id,
         coalesce(p_ids[n.move], n.earlier_move), n.epc_hex, n.device_id, n.location_id, n.at_return_door, n.is_new, n.skip_reason
    from (select unnest(r.tenants) as tenant_id, unnest(r.tag_reads) as zb_tag_read_id, unnest(r.hashes) as content_hash,
                 unnest(r.processors) as processor_type, unnest(r.at) as event_timestamp, unnest(r.baskets) as basket_id,
                 unnest(r.moves) as move, unnest(r.earlier_moves) as earlier_move, unnest(r.epcs) as epc_hex,
                 unnest(r.devices) as device_id, unnest(r.locations) as location_id, unnest(r.at_return_door) as at_return_door,
                 unnest(r.is_new) as is_new, unnest(r.skips) as skip_reason) n
   where n.skip_reason is distinct from 'duplicate';
end $$;

-- Counts repetitions on the stored movements that they repeat.
create or replace function rfid.count_repeats(p_ids bigint[], p_counts integer[], p_last_at timestamptz[]) returns void
language sql
set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
  update rfid.movements m set repeats = m.repeats + r.repeats, last_at = greatest(m.last_at, r.last_at)
    from unnest(p_ids, p_counts, p_last_at) as r (id, repeats, last_at) where m.id = r.id
$$;

-- Writes the failed reads: rows that take no dedupe key.
create or replace function rfid.record_failures(
  p_tenants text[], p_tag_reads bigint[], p_hashes text[], p_processors text[], p_at timestamptz[], p_epcs text[],
  p_devices text[], p_errors text[]
) returns void
language sql as $$
  insert into rfid.tag_read_processings
    (tenant_id, zb_tag_read_id, content_hash, processor_type, event_timestamp, epc_hex, device_id, error_message)
  select r.tenant_id, r.zb_tag_read_id, decode(r.content_hash, 'hex'), r.processor_type, r.event_timestamp, r.epc_hex,
         r.device_id, r.error_message
    from unnest(p_tenants, p_tag_reads, p_hashes, p_processors, p_at, p_epcs, p_devices, p_errors)
      as r (tenant_id, zb_tag_read_id, content_hash, processor_type, event_timestamp, epc_hex, device_id, error_message)
$$;
