-- The parts of a claim: look at a stream, start a turn at it, read what the turn takes, end the turn. Called by claim, whose
-- planner settings apply.

create or replace function tallyman.has_expired_claims(p_stream tallyman.streams) returns boolean
language plpgsql as $$
begin
  -- Relies on claims_of_stream.
  return exists (
    select 1 from tallyman.claims c
     where c.stream = p_stream.id and c.token >= p_stream.first_token
       and (c.expires_at <= clock_timestamp() or c.stale_at <= clock_timestamp()));
end $$;

-- Looks whether a turn at a stream would be worth taking, without a lock. A claim has one turn: at a stream of which all is
-- held it would be wasted, and other streams would never be reached.
--
--   empty, held     there is nothing, or nothing that is free
--   paused, limited its queue is paused, or has used up its limit
--   suspect, alone  work of a crashed batch, which an ordinary claim (p_isolated is null) leaves alone
--   free            there is something to take
create or replace function tallyman.peek(p_stream tallyman.streams, p_late boolean, p_isolated text) returns text
language plpgsql as $$
declare
  v_start bigint := case when p_late then p_stream.floor else p_stream.cursor end;
  v_held bigint[];
  v_queue tallyman.queues;
begin
  if not exists (select 1 from tallyman.jobs j where j.stream = p_stream.id and j.lane is null and j.pos >= v_start)
     and not exists (select 1 from tallyman.lanes l where l.stream = p_stream.id and l.pos >= v_start) then
    return 'empty';
  end if;
  v_held := tallyman.held_from(p_stream.id, p_stream.first_token, v_start);
  if v_held is not null
     and not exists (select 1 from tallyman.jobs j
                      where j.stream = p_stream.id and j.lane is null and j.pos >= v_start
                        and j.pos not in (select unnest(v_held)))
     and not exists (select 1 from tallyman.lanes l
                      where l.stream = p_stream.id and l.pos >= v_start and l.pos not in (select unnest(v_held))) then
    return 'held';
  end if;
  select * into v_queue from tallyman.queues q where q.name = p_stream.queue;
  return case when v_queue.paused_at is not null then 'paused'
              when (v_queue.max_running is not null or v_queue.rate_per_second is not null)
                and tallyman.allowance(v_queue, false) <= 0 then 'limited'
              when p_isolated is null and p_stream.variant in ('suspect', 'alone') then p_stream.variant
              else 'free' end;
end $$;

-- Starts a turn: locks the stream, and tells from where to read, what is held there, and how much may be taken.
create or replace function tallyman.start_turn(
  p_stream integer, p_late boolean, p_want integer, p_lane_jobs integer,
  out stream tallyman.streams,
  out start bigint,
  out held bigint[],           -- null: nothing is held at or above the start
  out want integer,            -- 0: the queue's limit is used up, and nothing else is set
  out lane_jobs integer,
  out limited boolean,         -- less than was asked for
  out has_rate boolean,
  out token bigint,
  out first_token bigint,      -- the first claim of the stream that is left; null: none is
  out horizon xid8             -- every transaction below it had ended before the read
)
language plpgsql as $$
declare
  v_queue tallyman.queues;
  v_allowance integer;
begin
  select s.* into stream from tallyman.streams s where s.id = p_stream for update;
  select q.* into v_queue from tallyman.queues q where q.name = stream.queue;
  has_rate := v_queue.rate_per_second is not null;
  want := p_want;
  lane_jobs := p_lane_jobs;
  if has_rate or v_queue.max_running is not null then
    v_allowance := tallyman.allowance(v_queue, true);
    want := least(p_want, v_allowance);
    if has_rate and want > 0 then
      lane_jobs := greatest(1, least(p_lane_jobs, v_allowance / want));
    end if;
  end if;
  limited := want < p_want;
  if want > 0 then
    start := case when p_late then stream.floor else stream.cursor end;
    -- Relies on claims_of_stream.
    select min(c.token) into first_token
      from tallyman.claims c where c.stream = p_stream and c.token >= stream.first_token;
    held := case when first_token is not null then tallyman.held_from(p_stream, stream.first_token, start) end;
    token := nextval('tallyman.tokens');
    horizon := pg_snapshot_xmin(pg_current_snapshot());
  end if;
end $$;

-- Reads the next free jobs and lanes of a stream, by position; of each lane its first jobs. The columns are those of claim.
-- Relies on jobs_ready, lanes_ready and jobs_in_lane. NOT IN (select ...) is looked up in a hash; <> ALL (array) would walk
-- the array for every row.
create or replace function tallyman.read_items(
  p_stream integer, p_start bigint, p_held bigint[], p_want integer, p_lane_jobs integer,
  out positions bigint[], out kinds json, out payloads text, out created json, out unusual json, out lanes bigint[],
  out lane_items json,
  out items bigint[],          -- positions of lanes and of free jobs: what the claim holds; null: nothing was there
  out last_pos bigint          -- the greatest of them
)
language plpgsql as $$
#variable_conflict use_column
begin
  with lane as materialized (
    select l.pos, l.id, l.key, l.floor
      from tallyman.lanes l
     where l.stream = p_stream and l.pos >= p_start and l.pos not in (select unnest(p_held))
     order by l.pos limit p_want
  ), last as materialized (
    -- The last item, counting jobs and lanes by position, each from its index, so that nothing is sorted. Where there are
    -- no lanes there is nothing to count.
    select max(i.pos) as pos
      from ((select j.pos from tallyman.jobs j
              where j.stream = p_stream and j.lane is null and j.pos >= p_start and j.pos not in (select unnest(p_held))
              order by j.pos limit p_want)
            union all
            (select l.pos from tallyman.lanes l
              where l.stream = p_stream and l.pos >= p_start and l.pos not in (select unnest(p_held))
              order by l.pos limit p_want)
            order by pos limit p_want) i
     where exists (select 1 from lane)
  ), job as (
    (select j.pos, j.kind, j.created_at, tallyman.small_payload(j) as payload, tallyman.unusual(j, false) as unusual,
            null::bigint as lane
       from tallyman.jobs j
      where j.stream = p_stream and j.lane is null and j.pos >= p_start and j.pos not in (select unnest(p_held))
        and j.pos <= coalesce((select i.pos from last i), 9223372036854775807)
      order by j.pos limit p_want)
    union all
    select f.*, l.id
      from lane l cross join lateral (
        select j.pos, j.kind, j.created_at, tallyman.small_payload(j),
               tallyman.unusual(j, j.latest_only and exists (
                 select 1 from tallyman.jobs n where n.lane = j.lane and n.pos > j.pos and n.kind = j.kind))
          from tallyman.jobs j where j.lane = l.id and j.pos >= l.floor
         order by j.pos limit p_lane_jobs) f
     where l.pos <= (select i.pos from last i)
  )
  select array_agg(j.pos), string_agg(j.payload, ','),
         case when min(j.kind collate "C") = max(j.kind collate "C") then to_json(min(j.kind collate "C"))
              else to_json(array_agg(j.kind)) end,
         case when min(j.created_at) = max(j.created_at) then to_json(date_part('epoch', min(j.created_at)))
              else to_json(array(select date_part('epoch', c.at) from unnest(array_agg(j.created_at)) as c (at))) end,
         json_object_agg(coalesce(j.lane || ':', '') || j.pos, j.unusual) filter (where j.unusual is not null),
         case when count(j.lane) > 0 then array_agg(j.lane) end,
         (select json_agg(json_build_array(l.id::text, l.pos::text, l.key)) from lane l where l.pos <= (select i.pos from last i)),
         (select array_agg(l.pos) from lane l where l.pos <= (select i.pos from last i)),
         coalesce((select i.pos from last i), max(j.pos))
    into positions, payloads, kinds, created, unusual, lanes, lane_items, items, last_pos
    from job j;
  items := case when items is null then positions
                else items || array(select j.pos from unnest(positions, lanes) as j (pos, lane) where j.lane is null) end;
end $$;

-- Ends a turn: moves the stream's cursor behind what was taken and, after a late one, its floor as far as that is safe.
create or replace function tallyman.end_turn(
  p_stream tallyman.streams,   -- as it was when the turn started
  p_late boolean, p_horizon xid8, p_first_token bigint,
  p_last bigint,               -- null: nothing was taken
  p_is_end boolean             -- nothing was left behind it
) returns void
language plpgsql as $$
declare
  v_floor bigint := p_stream.floor;
  v_mark bigint := p_stream.mark;
  v_mark_xid xid8 := p_stream.mark_xid;
begin
  if p_late and (v_mark_xid is null or p_horizon >= v_mark_xid) then
    -- This turn saw everything there will ever be below the mark, as far as it went.
    v_floor := greatest(v_floor, least(v_mark, case when p_is_end then v_mark else p_last + 1 end));
    if v_floor >= v_mark then
      v_mark_xid := tallyman.fresh_xid(p_stream.id);
      v_mark := greatest(p_stream.cursor, p_last + 1, v_floor);
    end if;
  end if;
  -- A release may have moved the cursor back behind the mark, and the floor is at the mark now: the cursor follows.
  update tallyman.streams s
     set cursor = greatest(s.cursor, p_last + 1, v_floor), floor = v_floor, mark = v_mark, mark_xid = v_mark_xid,
         first_token = p_first_token
   where s.id = p_stream.id and (p_last is not null or s.floor <> v_floor);
end $$;

-- How much more a queue with fleet-wide limits may hand out now. To spend it, p_lock: the queue's row is taken, so that
-- streams of one queue cannot both spend the last of it.
create or replace function tallyman.allowance(p_queue tallyman.queues, p_lock boolean) returns integer
language plpgsql as $$
declare
  v_queue tallyman.queues := p_queue;
  v_allowance double precision := 2147483647;
  v_tokens double precision;
begin
  if p_lock then
    select * into v_queue from tallyman.queues q where q.name = p_queue.name for update;
  end if;
  if v_queue.rate_per_second is not null then
    v_tokens := least(coalesce(v_queue.rate_burst, greatest(v_queue.rate_per_second, 1)),
      v_queue.rate_tokens
        + v_queue.rate_per_second * extract(epoch from clock_timestamp() - v_queue.rate_refilled_at));
    if p_lock then
      update tallyman.queues q set rate_tokens = v_tokens, rate_refilled_at = clock_timestamp() where q.name = v_queue.name;
    end if;
    v_allowance := floor(v_tokens);
  end if;
  if v_queue.max_running is not null then
    -- A claim lists what is done until all of it is: only what is still there counts. Scalar subqueries are looked up one
    -- by one; EXISTS might be answered by reading every job there is.
    v_allowance := least(v_allowance, v_queue.max_running - (
      select count(coalesce(
               (select j.id from tallyman.jobs j where j.stream = c.stream and j.lane is null and j.pos = h.pos),
               (select l.id from tallyman.lanes l where l.stream = c.stream and l.pos = h.pos)))
        from tallyman.claims c join tallyman.streams s on s.id = c.stream, unnest(c.positions) as h (pos)
       where s.queue = v_queue.name));
  end if;
  return greatest(v_allowance, 0);
end $$;
