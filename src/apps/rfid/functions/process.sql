-- The statements of processTagReads, in the order it runs them. They are functions so that a session plans them once.
--
-- A plan made while a table was empty must still be good at a million rows. A join is not: next to an empty table, the
-- wrong join looks best. So each row looks up what it needs, by a lateral subquery that cannot be flattened
-- (`offset 0`, or a lock in it), or by a nested loop where the other plans are switched off.

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
