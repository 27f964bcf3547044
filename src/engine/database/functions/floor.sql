-- The floor of a stream, below which no free position can appear any more, and what is held above it.

-- What claims of a stream hold at or above a position; null for nothing. Relies on claims_of_stream.
create or replace function tallyman.held_from(p_stream integer, p_first_token bigint, p_start bigint) returns bigint[]
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan
as $$
begin
  return (select array_agg(p.pos)
            from tallyman.claims c, unnest(c.positions) as p (pos)
           where c.stream = p_stream and c.token >= p_first_token and c.max_pos >= p_start and p.pos >= p_start);
end $$;

-- The streams that have something free behind their cursors.
create or replace function tallyman.left_behind(p_queues text[]) returns integer[]
language plpgsql stable
set enable_seqscan = off set enable_bitmapscan = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
  v_stream tallyman.streams;
  v_held bigint[];
  v_found integer[] := '{}';
begin
  for v_stream in
    select s.* from tallyman.streams s
     where s.queue = any (p_queues) and s.floor < s.cursor and s.variant not in ('suspect', 'alone')
  loop
    -- Most streams have nothing there. Relies on jobs_ready and lanes_ready.
    continue when not exists (select 1 from tallyman.jobs j where j.stream = v_stream.id and j.lane is null
                                 and j.pos >= v_stream.floor and j.pos < v_stream.cursor)
      and not exists (select 1 from tallyman.lanes l where l.stream = v_stream.id
                         and l.pos >= v_stream.floor and l.pos < v_stream.cursor);
    v_held := coalesce(tallyman.held_from(v_stream.id, v_stream.first_token, v_stream.floor), '{}');
    if exists (select 1 from tallyman.jobs j where j.stream = v_stream.id and j.lane is null
                  and j.pos >= v_stream.floor and j.pos < v_stream.cursor and j.pos not in (select unnest(v_held)))
       or exists (select 1 from tallyman.lanes l where l.stream = v_stream.id
                     and l.pos >= v_stream.floor and l.pos < v_stream.cursor and l.pos not in (select unnest(v_held))) then
      v_found := v_found || v_stream.id;
    end if;
  end loop;
  return v_found;
end $$;

-- Raises the floor of a stream in which everything is held, so that scans from the floor stay cheap. Does not wait for
-- the stream's lock.
create or replace function tallyman.raise_floor(p_stream integer) returns void
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  v_stream tallyman.streams;
  v_held bigint[];
  v_free bigint;
begin
  select * into v_stream from tallyman.streams s where s.id = p_stream for update skip locked;
  if not found or v_stream.mark_xid > pg_snapshot_xmin(pg_current_snapshot()) then
    return;
  end if;
  -- Everything that will ever be below the mark is visible: all that is not held there is free.
  v_held := coalesce(tallyman.held_from(p_stream, v_stream.first_token, v_stream.floor), '{}');
  v_free := least(
    (select min(j.pos) from tallyman.jobs j
      where j.stream = p_stream and j.lane is null and j.pos >= v_stream.floor and j.pos < v_stream.mark
        and j.pos not in (select unnest(v_held))),
    (select min(l.pos) from tallyman.lanes l
      where l.stream = p_stream and l.pos >= v_stream.floor and l.pos < v_stream.mark
        and l.pos not in (select unnest(v_held))));
  if v_free is null then
    v_stream.floor := greatest(v_stream.floor, v_stream.mark);
    v_stream.cursor := greatest(v_stream.cursor, v_stream.floor);
    v_stream.mark_xid := tallyman.fresh_xid(p_stream);
    v_stream.mark := v_stream.cursor;
  else
    v_stream.floor := greatest(v_stream.floor, v_free);
    v_stream.cursor := greatest(v_stream.cursor, v_stream.floor);
  end if;
  update tallyman.streams s
     set cursor = v_stream.cursor, floor = v_stream.floor, mark = v_stream.mark, mark_xid = v_stream.mark_xid
   where s.id = p_stream;
end $$;

-- A transaction id greater than every one that was given out before this call: that of a subtransaction, read off a row
-- it wrote. The xmax of a snapshot would not do: it is one past the greatest id that has *completed*, and a transaction
-- with that very id may be running. The caller has the stream's row locked, and a transaction id of its own.
create or replace function tallyman.fresh_xid(p_stream integer) returns xid8
language plpgsql as $$
declare
  v_top bigint := pg_current_xact_id()::text::bigint;
  v_low bigint;
begin
  begin
    update tallyman.streams s set mark_xid = null where s.id = p_stream returning s.xmin::text::bigint into v_low;
  exception when assert_failure then
    raise;  -- Nothing is caught: the block is there for its subtransaction.
  end;
  -- A row tells the low 32 bits; the rest is that of the transaction, or one more where they have wrapped around.
  return ((v_top & ~4294967295) + v_low
          + case when v_low < v_top & 4294967295 then 4294967296 else 0 end)::text::xid8;
end $$;
