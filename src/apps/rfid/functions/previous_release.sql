-- Functions that workers of version 0.2 call while a roll-out is under way. The next release drops them (decision 15).
--
-- They decide in the order of arrival, as 0.2 did; their rows have no location, and their movements no repeats.

-- Creates the missing baskets and locks all of them until the caller's transaction ends.
--
-- Both steps go in key order, new baskets first, so transactions cannot deadlock: one that waits for a new basket holds
-- only smaller new ones. One that waits for an old basket holds only smaller old ones and its own new ones, which no
-- transaction that waits for an old basket can see. Relies on baskets_by_epc.
create or replace function rfid.take_baskets(p_tenants text[], p_epcs text[], p_uris text[])
returns table (n bigint, id bigint, location_id bigint, last_seen_at numeric,
               movement_id bigint, moved_from bigint, moved_to bigint, moved_at numeric)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
  insert into rfid.baskets (tenant_id, epc_hex, epc_uri)
  select w.tenant_id, w.epc_hex, w.epc_uri
    from unnest(p_tenants, p_epcs, p_uris) as w (tenant_id, epc_hex, epc_uri)
   where not exists (select 1 from rfid.baskets b
                      where b.tenant_id = w.tenant_id and b.epc_hex = w.epc_hex offset 0)
   order by w.tenant_id collate "C", w.epc_hex collate "C"
  on conflict do nothing;
  -- A separate statement: its snapshot is taken after the wait, so it sees baskets that others created meanwhile.
  return query
  select w.n, b.id, b.location_id, extract(epoch from b.last_seen_at),
         b.movement_id, b.moved_from, b.moved_to, extract(epoch from b.moved_at)
    from (select u.* from unnest(p_tenants, p_epcs) with ordinality as u (tenant_id, epc_hex, n)
           order by u.tenant_id collate "C", u.epc_hex collate "C") w,
         lateral (select b.* from rfid.baskets b
                   where b.tenant_id = w.tenant_id and b.epc_hex = w.epc_hex
                     for no key update) b;
end $$;

-- Writes a decision: movements, the new state of baskets, and a row for each read that is no duplicate. Returns the ids of
-- the movements, in order. Reads and baskets refer to a movement of this call by its number from 1, to an earlier one by its id.
create or replace function rfid.record(
  p_move_tenants text[], p_move_baskets bigint[], p_move_from bigint[], p_move_to bigint[],
  p_move_at timestamptz[], p_move_windows timestamptz[], p_move_devices text[],
  p_baskets bigint[], p_locations bigint[], p_seen_at timestamptz[],
  p_seen_by text[], p_last_moves integer[], p_moved_from bigint[], p_moved_to bigint[], p_moved_at timestamptz[],
  p_tenants text[], p_tag_reads bigint[], p_hashes text[], p_processors text[], p_at timestamptz[],
  p_read_baskets bigint[], p_read_moves integer[], p_earlier_moves bigint[], p_epcs text[], p_devices text[],
  p_new boolean[], p_skips text[], p_move_epcs text[]
) returns bigint[]
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
  v_moves bigint[] := array(select nextval('rfid.movement_ids') from generate_series(1, cardinality(p_move_baskets)));
begin
  insert into rfid.movements
    (id, basket_id, from_location_id, to_location_id, event_timestamp, window_start, device_id, tenant_id)
  select m.* from unnest(v_moves, p_move_baskets, p_move_from, p_move_to, p_move_at, p_move_windows, p_move_devices,
                         p_move_tenants) as m;

  -- The only join: with the other plans off it must use the primary key, row by row.
  update rfid.baskets b
     set location_id = s.location_id, last_seen_at = s.seen_at, first_seen_at = coalesce(b.first_seen_at, s.seen_at),
         last_device_id = s.seen_by, movement_id = coalesce(v_moves[s.move], b.movement_id),
         moved_from = case when s.move is null then b.moved_from else s.moved_from end,
         moved_to = coalesce(s.moved_to, b.moved_to), moved_at = coalesce(s.moved_at, b.moved_at)
    from unnest(p_baskets, p_locations, p_seen_at, p_seen_by, p_last_moves, p_moved_from, p_moved_to, p_moved_at)
      as s (id, location_id, seen_at, seen_by, move, moved_from, moved_to, moved_at)
   where b.id = s.id;

  insert into rfid.tag_read_processings
    (tenant_id, zb_tag_read_id, content_hash, processor_type, event_timestamp, basket_id, movement_id, epc_hex,
     device_id, is_new_basket, skip_reason)
  select r.tenant_id, r.zb_tag_read_id, decode(r.content_hash, 'hex'), r.processor_type, r.event_timestamp, r.basket_id,
         coalesce(v_moves[r.move], r.earlier_move), r.epc_hex, r.device_id, r.is_new, r.skip_reason
    from unnest(p_tenants, p_tag_reads, p_hashes, p_processors, p_at, p_read_baskets, p_read_moves, p_earlier_moves,
                p_epcs, p_devices, p_new, p_skips)
      as r (tenant_id, zb_tag_read_id, content_hash, processor_type, event_timestamp, basket_id, move, earlier_move,
            epc_hex, device_id, is_new, skip_reason)
   where r.skip_reason is distinct from 'duplicate';

  if cardinality(v_moves) > 0 then
    perform rfid.tell_movements(p_move_tenants, v_moves, p_move_from, p_move_to, p_move_at, p_move_devices, p_move_epcs);
  end if;
  return v_moves;
end $$;

-- One event for each movement, and before it one for a basket that is new: its first movement comes from nowhere.
create or replace function rfid.tell_movements(
  p_tenants text[], p_ids bigint[], p_from bigint[], p_to bigint[], p_at timestamptz[], p_devices text[], p_epcs text[]
) returns void
language plpgsql
set plan_cache_mode = force_generic_plan
as $$
begin
  -- Relies on the nested loop for the order of the movements: sorting each array would cost more than the rest.
  perform tallyman_events.emit_many(
      array_agg(e.event_type), array_agg('basket'::text), array_agg(m.epc_hex), array_agg(e.payload),
      array_agg(m.tenant_id), occurred_at => array_agg(m.at))
    from unnest(p_tenants, p_ids, p_from, p_to, p_at, p_devices, p_epcs)
           as m (tenant_id, id, from_id, to_id, at, device_id, epc_hex),
         lateral (
           select 'rfid.basket.created' as event_type,
                  json_build_object('epc_hex', m.epc_hex, 'location_id', m.to_id::text,
                                    'device_id', m.device_id) as payload
            where m.from_id is null
           union all
           select 'rfid.movement',
                  json_build_object('movement_id', m.id::text, 'epc_hex', m.epc_hex, 'from_location_id', m.from_id::text,
                                    'to_location_id', m.to_id::text, 'device_id', m.device_id)) e;
end $$;

-- Marks baskets that were read at a return door and closes their lines. The caller has locked the baskets. A return that
-- arrives late closes only lines that were loaded before it.
create or replace function rfid.return_baskets(p_baskets bigint[], p_at timestamptz[]) returns void
language plpgsql
set plan_cache_mode = force_generic_plan
as $$
declare
  v_tenants text[];
  v_epcs text[];
  v_at timestamptz[];
  v_shipments bigint[];
begin
  with marked as (
    update rfid.baskets b set returned_at = r.at
      from (select u.basket_id, max(u.at) as at, o.returned_at as before
              from unnest(p_baskets, p_at) as u (basket_id, at) join rfid.baskets o on o.id = u.basket_id group by 1, 3) r
     where b.id = r.basket_id
       and (b.returned_at is null or b.returned_at < r.at)
       and not exists (select 1 from rfid.shipment_lines l
                        where l.basket_id = b.id and l.closed_at is null and l.loaded_at > r.at)
    returning b.tenant_id, b.epc_hex, r.at, r.before, b.moved_at
  )
  select array_agg(m.tenant_id), array_agg(m.epc_hex), array_agg(m.at) into v_tenants, v_epcs, v_at
    from marked m
   -- A basket that stays at the door is read many times but returned once.
   where m.before is null or m.moved_at > m.before;
  -- The first return after the loading closes the line.
  with closed as (
    update rfid.shipment_lines l set closed_at = r.at
      from (select o.id, min(u.at) as at
              from unnest(p_baskets, p_at) as u (basket_id, at)
              join rfid.shipment_lines o on o.basket_id = u.basket_id and o.closed_at is null and o.loaded_at <= u.at
             group by 1) r
     where l.id = r.id
    returning l.shipment_id
  )
  select array_agg(distinct c.shipment_id) into v_shipments from closed c;

  if v_epcs is not null then
    perform tallyman_events.emit_many(
        array_agg('rfid.basket.returned'::text), array_agg('basket'::text), v_epcs,
        array_agg(json_build_object('epc_hex', e.epc_hex) order by e.n), v_tenants, occurred_at => v_at)
      from unnest(v_epcs) with ordinality as e (epc_hex, n);
  end if;
  if v_shipments is not null then
    perform rfid.tell_closed(v_shipments);
  end if;
end $$;
