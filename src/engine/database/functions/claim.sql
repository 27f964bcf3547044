-- What a claim hands over of a job beside its position, kind, payload and time, where something differs from the usual;
-- null where nothing is. `scheduled` is in seconds since 1970. A payload over 8 KiB is `large`: to be fetched when the job
-- starts, so that a claim is bounded in bytes.
--
-- One expression without a subquery, so that it is made part of the query that calls it; the same holds for the next.
create or replace function tallyman.unusual(j tallyman.jobs, p_superseded boolean) returns json
language sql stable as $$
  select case when j.id <> j.pos or j.tenant_id <> 'default' or j.attempts > 0 or j.max_attempts <> 5
           or j.correlation_id is not null or j.scheduled_at <> j.created_at or j.trace is not null
           or j.latest_only or j.dedupe_key is not null or octet_length(j.payload::text) > 8192
      then json_strip_nulls(json_build_object(
        'id', nullif(j.id, j.pos)::text, 'tenant', nullif(j.tenant_id, 'default'), 'attempts', nullif(j.attempts, 0),
        'maxAttempts', nullif(j.max_attempts, 5), 'correlation', j.correlation_id,
        'scheduled', date_part('epoch', nullif(j.scheduled_at, j.created_at)), 'trace', j.trace,
        'early', nullif(j.scheduled_at > now(), false), 'superseded', nullif(p_superseded, false),
        'keyed', nullif(j.dedupe_key is not null, false),
        'large', nullif(octet_length(j.payload::text) > 8192, false)))
    end
$$;

create or replace function tallyman.small_payload(j tallyman.jobs) returns text
language sql stable as $$
  select case when octet_length(j.payload::text) <= 8192 then j.payload::text else 'null' end
$$;

-- Claim: one turn at one stream. The lock on the stream's row is the turn; it lasts a few milliseconds and nobody
-- waits for a job, only for a turn. A claim never has more than one turn, so two claims cannot wait for each other;
-- the caller asks again while `more` says that another stream has work.
--
-- The scan starts at the stream's cursor, past everything that earlier claims took, so its cost does not depend on
-- how much was done before or lies waiting. A job whose transaction drew a small position but committed late would
-- stay behind the cursor; a turn with p_late starts at the floor instead and finds it. Such a turn goes to a stream that
-- has something behind its cursor, if there is one: looks from the floor are rare, and one that always went to the stream
-- with the highest priority would never reach the others. The floor follows as soon as every transaction that could still
-- commit below it has ended.
--
-- Planner choices are switched off: a queue's table is empty at one ANALYZE and full at the next, and an index
-- scan in position order is right for both.

create or replace function tallyman.claim(
  p_worker text,
  p_queues text[],
  p_wants integer[],       -- how many items at the most, for each queue
  p_total integer,         -- and altogether
  p_kinds text[],          -- kinds this worker knows
  p_isolated text,         -- 'suspect' or 'alone': take one item of a crashed batch, nothing else. Null: ordinary work
  p_lane_jobs integer,     -- jobs prefetched from a lane
  p_late boolean,          -- start at the floor
  p_lease_ms integer,
  p_stale_ms integer,
  p_drop bigint[]          -- own claims of which nothing is left
) returns table (
  token bigint, stream integer, queue text, priority smallint,
  -- The jobs that the claim holds, column by column, each a text that is cheap to write and to read: a row with cells for
  -- each job would cost more than the jobs do, on both sides. Free ones by position, then lane by lane, by seq.
  positions bigint[],      -- in a lane: seqs
  kinds json,              -- one for all, or an array
  payloads text,           -- JSON, without the brackets
  created json,            -- seconds since 1970; one for all, or an array
  -- {"position": see tallyman.unusual}, in a lane {"lane:seq": ...}: the seq of a job that was redriven to the head may be
  -- another job's position. Null: nothing is.
  unusual json,
  lanes bigint[],          -- the lane of each job; null: all are free
  lane_items json,         -- [["lane", "position in the stream", "key"], ...]
  expired boolean, suspects boolean, alone boolean, limited boolean, more boolean  -- a row of its own, at the end
)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_left integer := p_total;
  v_left_of integer[] := p_wants;
  v_stream record;
  v_queue tallyman.queues;
  v_q integer;
  v_start bigint;
  v_want integer;
  v_held bigint[];
  v_has_turn boolean := false;
  v_left_behind integer[] := case when p_late and p_isolated is null then tallyman.left_behind(p_queues) end;
  v_behind integer[] := '{}';
  v_id integer;
  v_first_token bigint;
  v_any_expired boolean := false;
  v_suspects boolean := false;
  v_alone boolean := false;
  v_limited boolean := false;
  v_more boolean := false;
  v_allowance integer;
  v_lane_jobs integer := case when p_isolated is null then p_lane_jobs else 1 end;
  v_xmin xid8;
  v_xmax xid8;
  v_items bigint[];
  v_taken integer := 0;
  v_last bigint;
  v_floor bigint;
begin
  -- A claim that a crash of the server forgets only frees its jobs, so it need not wait for the disk.
  perform set_config('synchronous_commit', 'off', true);
  perform tallyman.drop_claims(p_worker, p_drop);

  -- Queues take turns. Within a queue the stream whose next position is the lowest goes first: what others left behind is
  -- older than what has come since, and no kind waits for another forever.
  for v_stream in
    select s.*, array_position(p_queues, s.queue) as q
      from tallyman.streams s
     where s.queue = any (p_queues)
       and case when p_isolated is not null then s.variant = p_isolated
                else s.variant in ('', 'suspect', 'alone')
                  or (s.variant like 'kind:%' and substr(s.variant, 6) = any (p_kinds)) end
     order by s.id = any (v_left_behind) desc nulls last, s.priority, array_position(p_queues, s.queue), s.cursor
  loop
    v_q := v_stream.q;
    v_start := case when p_late then v_stream.floor else v_stream.cursor end;

    -- Relies on claims_of_stream. Before the peek: all that is left may be what a dead worker holds.
    v_any_expired := v_any_expired or exists (
      select 1 from tallyman.claims c
       where c.stream = v_stream.id and c.token >= v_stream.first_token
         and (c.expires_at <= clock_timestamp() or c.stale_at <= clock_timestamp()));

    -- Without the lock: is there anything at all, and is any of it free? A turn at a stream of which all is held would be
    -- the only one of this claim, and others would never be reached.
    continue when v_left_of[v_q] <= 0
      or not exists (select 1 from tallyman.jobs j
                      where j.stream = v_stream.id and j.lane is null and j.pos >= v_start)
     and not exists (select 1 from tallyman.lanes l where l.stream = v_stream.id and l.pos >= v_start);
    v_held := tallyman.held_from(v_stream.id, v_stream.first_token, v_start);
    if v_held is not null
       and not exists (select 1 from tallyman.jobs j
                        where j.stream = v_stream.id and j.lane is null and j.pos >= v_start
                          and j.pos not in (select unnest(v_held)))
       and not exists (select 1 from tallyman.lanes l
                        where l.stream = v_stream.id and l.pos >= v_start and l.pos not in (select unnest(v_held))) then
      if p_late and v_stream.floor < v_stream.cursor then
        v_behind := v_behind || v_stream.id;
      end if;
      continue;
    end if;

    select * into v_queue from tallyman.queues q where q.name = v_stream.queue;
    continue when v_queue.paused_at is not null;
    if (v_queue.max_running is not null or v_queue.rate_per_second is not null)
       and tallyman.allowance(v_queue, false) <= 0 then
      v_limited := true;
      continue;
    end if;
    if p_isolated is null and v_stream.variant in ('suspect', 'alone') then
      v_suspects := v_suspects or v_stream.variant = 'suspect';
      v_alone := v_alone or v_stream.variant = 'alone';
      continue;
    end if;
    if v_has_turn then
      v_more := true;
      exit;
    end if;
    v_has_turn := true;

    select s.*, v_q as q into v_stream from tallyman.streams s where s.id = v_stream.id for update;
    v_start := case when p_late then v_stream.floor else v_stream.cursor end;
    v_want := case when p_isolated is null then least(v_left, v_left_of[v_q]) else 1 end;
    if v_queue.max_running is not null or v_queue.rate_per_second is not null then
      v_allowance := tallyman.allowance(v_queue, true);
      v_limited := v_limited or v_allowance < v_want;
      v_want := least(v_want, v_allowance);
      -- Another claim was faster. This was the turn all the same: no second stream is locked in one claim.
      continue when v_want <= 0;
      if v_queue.rate_per_second is not null then
        v_lane_jobs := greatest(1, least(v_lane_jobs, v_allowance / v_want));
      end if;
    end if;

    -- What is held at or above the start. Relies on claims_of_stream.
    select min(c.token) into v_first_token
      from tallyman.claims c where c.stream = v_stream.id and c.token >= v_stream.first_token;
    v_held := case when v_first_token is not null
                   then tallyman.held_from(v_stream.id, v_stream.first_token, v_start) end;

    v_xmin := pg_snapshot_xmin(pg_current_snapshot());
    token := nextval('tallyman.tokens');
    -- Relies on jobs_ready, lanes_ready and jobs_in_lane. NOT IN (select ...) is looked up in a hash; <> ALL (array) would
    -- walk the array for every row.
    with lane as materialized (
      select l.pos, l.id, l.key, l.floor
        from tallyman.lanes l
       where l.stream = v_stream.id and l.pos >= v_start and l.pos not in (select unnest(v_held))
       order by l.pos limit v_want
    ), last as materialized (
      -- The last item, counting jobs and lanes by position, each from its index, so that nothing is sorted. Where there are
      -- no lanes there is nothing to count.
      select max(i.pos) as pos
        from ((select j.pos from tallyman.jobs j
                where j.stream = v_stream.id and j.lane is null and j.pos >= v_start and j.pos not in (select unnest(v_held))
                order by j.pos limit v_want)
              union all
              (select l.pos from tallyman.lanes l
                where l.stream = v_stream.id and l.pos >= v_start and l.pos not in (select unnest(v_held))
                order by l.pos limit v_want)
              order by pos limit v_want) i
       where exists (select 1 from lane)
    ), job as (
      (select j.pos, j.kind, j.created_at, tallyman.small_payload(j) as payload, tallyman.unusual(j, false) as unusual,
              null::bigint as lane
         from tallyman.jobs j
        where j.stream = v_stream.id and j.lane is null and j.pos >= v_start and j.pos not in (select unnest(v_held))
          and j.pos <= coalesce((select i.pos from last i), 9223372036854775807)
        order by j.pos limit v_want)
      union all
      select f.*, l.id
        from lane l cross join lateral (
          select j.pos, j.kind, j.created_at, tallyman.small_payload(j),
                 tallyman.unusual(j, j.latest_only and exists (
                   select 1 from tallyman.jobs n where n.lane = j.lane and n.pos > j.pos and n.kind = j.kind))
            from tallyman.jobs j where j.lane = l.id and j.pos >= l.floor
           order by j.pos limit v_lane_jobs) f
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
      into positions, payloads, kinds, created, unusual, lanes, lane_items, v_items, v_last
      from job j;
    v_items := case when v_items is null then positions
                    else v_items || array(select j.pos from unnest(positions, lanes) as j (pos, lane) where j.lane is null) end;
    v_taken := coalesce(cardinality(v_items), 0);
    if v_taken > 0 then
      stream := v_stream.id;
      queue := v_stream.queue;
      priority := v_stream.priority;
      insert into tallyman.claims
        (token, worker, stream, expires_at, stale_at, positions, max_pos, lane_jobs, isolated)
      values (token, p_worker, stream, clock_timestamp() + p_lease_ms * interval '1 millisecond',
              clock_timestamp() + p_stale_ms * interval '1 millisecond', v_items, v_last, v_lane_jobs,
              p_isolated is not null);
      return next;
      if v_queue.rate_per_second is not null then
        update tallyman.queues q set rate_tokens = q.rate_tokens - cardinality(positions) where q.name = v_queue.name;
      end if;
    end if;
    v_left := v_left - v_taken;
    v_left_of[v_q] := v_left_of[v_q] - v_taken;

    v_floor := v_stream.floor;
    v_xmax := v_stream.mark_xid;
    if p_late and (v_xmax is null or v_xmin >= v_xmax) then
      -- This scan saw everything there will ever be below the mark, as far as it went.
      v_floor := greatest(v_floor, least(v_stream.mark,
        case when v_taken < v_want then v_stream.mark else v_last + 1 end));
      if v_floor >= v_stream.mark then
        v_xmax := tallyman.fresh_xid(v_stream.id);
        v_stream.mark := greatest(v_stream.cursor, v_last + 1, v_floor);
      end if;
    end if;
    -- A release may have moved the cursor back behind the mark, and the floor is at the mark now: the cursor follows.
    update tallyman.streams s
       set cursor = greatest(s.cursor, v_last + 1, v_floor), floor = v_floor, mark = v_stream.mark, mark_xid = v_xmax,
           first_token = coalesce(v_first_token, token)
     where s.id = v_stream.id
       and (v_taken > 0 or s.floor <> v_floor);
    exit when p_isolated is not null;
  end loop;

  -- After the one turn. This does not wait.
  foreach v_id in array v_behind loop
    perform tallyman.raise_floor(v_id);
  end loop;

  if v_any_expired or v_suspects or v_alone or v_limited or v_more then
    return query select null::bigint, null::integer, null::text, null::smallint, null::bigint[], null::json, null::text,
                        null::json, null::json, null::bigint[], null::json, v_any_expired, v_suspects, v_alone, v_limited,
                        v_more;
  end if;
end $$;

-- The streams that have something free behind their cursors.
create function tallyman.left_behind(p_queues text[]) returns integer[]
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

-- Lets the floor of a stream follow where nothing of it can be claimed, so that looking from there stays cheap. Does not
-- wait for the stream.
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
