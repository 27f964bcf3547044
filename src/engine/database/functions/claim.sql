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
-- scan in position order is right for both. That holds for the functions that it calls, too (claim_turn.sql).

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
  v_left_of integer[] := p_wants;
  v_left_behind integer[] := case when p_late and p_isolated is null then tallyman.left_behind(p_queues) end;
  v_stream tallyman.streams;
  v_q integer;
  v_state text;
  v_seen text[] := '{}';
  v_all_held integer[] := '{}';
  v_held integer;
  v_has_turn boolean := false;
  v_turn record;
  v_read record;
  v_expired boolean := false;
  v_more boolean := false;
begin
  -- A claim that a crash of the server forgets only frees its jobs, so it need not wait for the disk.
  perform set_config('synchronous_commit', 'off', true);
  perform tallyman.drop_claims(p_worker, p_drop);

  -- Queues take turns. Within a queue the stream whose next position is the lowest goes first: what others left behind is
  -- older than what has come since, and no kind waits for another forever.
  for v_stream in
    select s.* from tallyman.streams s
     where s.queue = any (p_queues)
       and case when p_isolated is not null then s.variant = p_isolated
                else s.variant in ('', 'suspect', 'alone')
                  or (s.variant like 'kind:%' and substr(s.variant, 6) = any (p_kinds)) end
     order by s.id = any (v_left_behind) desc nulls last, s.priority, array_position(p_queues, s.queue), s.cursor
  loop
    v_q := array_position(p_queues, v_stream.queue);
    -- Before anything else: all that is left in the stream may be what a dead worker holds.
    v_expired := v_expired or tallyman.has_expired_claims(v_stream);
    continue when v_left_of[v_q] <= 0;
    v_state := tallyman.peek(v_stream, p_late, p_isolated);
    v_seen := v_seen || v_state;
    if v_state = 'held' and p_late and v_stream.floor < v_stream.cursor then
      v_all_held := v_all_held || v_stream.id;
    end if;
    continue when v_state <> 'free';
    -- This claim has had its turn.
    v_more := v_has_turn;
    exit when v_more;

    v_has_turn := true;
    v_turn := tallyman.start_turn(v_stream.id, p_late,
      case when p_isolated is null then least(p_total, v_left_of[v_q]) else 1 end,
      case when p_isolated is null then p_lane_jobs else 1 end);
    v_seen := v_seen || case when v_turn.limited then 'limited' else 'free' end;
    -- Other claims have used the limit up meanwhile. This was the turn all the same.
    continue when v_turn.want <= 0;
    v_read := tallyman.read_items(v_stream.id, v_turn.start, v_turn.held, v_turn.want, v_turn.lane_jobs);
    if v_read.items is not null then
      insert into tallyman.claims
        (token, worker, stream, expires_at, stale_at, positions, max_pos, lane_jobs, isolated)
      values (v_turn.token, p_worker, v_stream.id, clock_timestamp() + p_lease_ms * interval '1 millisecond',
              clock_timestamp() + p_stale_ms * interval '1 millisecond', v_read.items, v_read.last_pos, v_turn.lane_jobs,
              p_isolated is not null);
      if v_turn.has_rate then
        update tallyman.queues q set rate_tokens = q.rate_tokens - coalesce(cardinality(v_read.positions), 0)
         where q.name = v_stream.queue;
      end if;
      token := v_turn.token;
      stream := v_stream.id;
      queue := v_stream.queue;
      priority := v_stream.priority;
      positions := v_read.positions;
      kinds := v_read.kinds;
      payloads := v_read.payloads;
      created := v_read.created;
      unusual := v_read.unusual;
      lanes := v_read.lanes;
      lane_items := v_read.lane_items;
      return next;
      v_left_of[v_q] := v_left_of[v_q] - cardinality(v_read.items);
    end if;
    perform tallyman.end_turn(v_turn.stream, p_late, v_turn.horizon, coalesce(v_turn.first_token, v_turn.token),
                              v_read.last_pos, coalesce(cardinality(v_read.items), 0) < v_turn.want);
    exit when p_isolated is not null;
  end loop;

  -- After the one turn. This does not wait.
  foreach v_held in array v_all_held loop
    perform tallyman.raise_floor(v_held);
  end loop;
  if v_expired or v_more or v_seen && '{limited,suspect,alone}' then
    return query select null::bigint, null::integer, null::text, null::smallint, null::bigint[], null::json, null::text,
                        null::json, null::json, null::bigint[], null::json, v_expired, 'suspect' = any (v_seen),
                        'alone' = any (v_seen), 'limited' = any (v_seen), v_more;
  end if;
end $$;
