-- What a claim hands over of a job beside its position, kind, payload and time, where something is not as it mostly is;
-- null where nothing is. `scheduled` is in seconds since 1970. A payload over 8 KiB is `large`: to be fetched when the job
-- starts, so that a claim is bounded in bytes.
--
-- One expression without a subquery, so that it is made part of the query that calls it; the same holds for the next.
create function tallyman.unusual(j tallyman.jobs, p_superseded boolean) returns json
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

create function tallyman.small_payload(j tallyman.jobs) returns text
language sql stable as $$
  select case when octet_length(j.payload::text) <= 8192 then j.payload::text else 'null' end
$$;

-- Claim: one turn at a stream. The lock on the stream's row is the turn; it lasts a few milliseconds and nobody
-- waits for a job, only for a turn.
--
-- The scan starts at the stream's cursor, past everything that earlier claims took, so its cost does not depend on
-- how much was done before or lies waiting. A job whose transaction drew a small position but committed late would
-- stay behind the cursor; a turn with p_late starts at the floor instead and finds it. The floor follows as soon as
-- every transaction that could still commit below it has ended.
--
-- The planner is told not to be clever: a queue's table is empty at one ANALYZE and full at the next, and an index
-- scan in position order is right for both.

create function tallyman.claim(
  p_worker text,
  p_queues text[],
  p_wants integer[],       -- how many items at the most, for each queue
  p_total integer,         -- and altogether
  p_kinds text[],          -- kinds this worker knows
  p_alone boolean,         -- take one item of a crashed batch, nothing else
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
  unusual json,            -- {"position": see tallyman.unusual}; null: nothing is
  lanes bigint[],          -- the lane of each job; null: all are free
  lane_items json,         -- [["lane", "position in the stream", "key"], ...]
  expired boolean, alone boolean, limited boolean  -- a row of its own, at the end: what the caller should see to
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
  v_claims bigint;
  v_first_token bigint;
  v_any_expired boolean := false;
  v_alone_waits boolean := false;
  v_limited boolean := false;
  v_allowance integer;
  v_xmin xid8;
  v_xmax xid8;
  v_items bigint[];
  v_taken integer;
  v_last bigint;
  v_floor bigint;
begin
  -- A claim that a crash of the server forgets only frees its jobs, so it need not wait for the disk.
  perform set_config('synchronous_commit', 'off', true);
  if p_drop is not null then
    delete from tallyman.claims c where c.token = any (p_drop) and c.worker = p_worker;
  end if;

  for v_stream in
    select s.*, array_position(p_queues, s.queue) as q
      from tallyman.streams s
     where s.queue = any (p_queues)
       and case when p_alone then s.variant = 'alone'
                else s.variant = '' or s.variant = 'alone'
                  or (s.variant like 'kind:%' and substr(s.variant, 6) = any (p_kinds)) end
     order by s.priority, array_position(p_queues, s.queue), s.variant
  loop
    exit when v_left <= 0;
    v_q := v_stream.q;
    v_start := case when p_late then v_stream.floor else v_stream.cursor end;

    -- Relies on claims_of_stream. Before the peek: all that is left may be what a dead worker holds.
    v_any_expired := v_any_expired or exists (
      select 1 from tallyman.claims c
       where c.stream = v_stream.id and c.token >= v_stream.first_token
         and (c.expires_at <= clock_timestamp() or c.stale_at <= clock_timestamp()));

    -- Without the lock: is there anything at all?
    continue when v_left_of[v_q] <= 0
      or not exists (select 1 from tallyman.jobs j
                      where j.stream = v_stream.id and j.lane is null and j.pos >= v_start)
     and not exists (select 1 from tallyman.lanes l where l.stream = v_stream.id and l.pos >= v_start);

    if v_stream.variant = 'alone' and not p_alone then
      v_alone_waits := v_alone_waits or v_stream.cursor = v_start
        or exists (select 1 from tallyman.jobs j
                    where j.stream = v_stream.id and j.lane is null and j.pos >= v_stream.cursor)
        or exists (select 1 from tallyman.lanes l where l.stream = v_stream.id and l.pos >= v_stream.cursor);
      continue;
    end if;

    select * into v_queue from tallyman.queues q where q.name = v_stream.queue;
    continue when v_queue.paused_at is not null;

    select s.*, v_q as q into v_stream from tallyman.streams s where s.id = v_stream.id for update;
    v_start := case when p_late then v_stream.floor else v_stream.cursor end;
    v_want := case when p_alone then 1 else least(v_left, v_left_of[v_q]) end;
    if v_queue.max_running is not null or v_queue.rate_per_second is not null then
      v_allowance := tallyman.allowance(v_queue.name);
      v_limited := v_limited or v_allowance < v_want;
      v_want := least(v_want, v_allowance);
      continue when v_want <= 0;
    end if;

    -- What is held at or above the start. Relies on claims_of_stream.
    select min(c.token), count(*) into v_first_token, v_claims
      from tallyman.claims c where c.stream = v_stream.id and c.token >= v_stream.first_token;
    v_held := null;
    if v_claims > 0 then
      select array_agg(p.pos) into v_held
        from tallyman.claims c, unnest(c.positions) as p (pos)
       where c.stream = v_stream.id and c.token >= v_stream.first_token and c.max_pos >= v_start
         and p.pos >= v_start;
    end if;

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
      -- no lanes nobody has to count.
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
           order by j.pos limit case when p_alone then 1 else p_lane_jobs end) f
       where l.pos <= (select i.pos from last i)
    )
    select array_agg(j.pos), string_agg(j.payload, ','),
           case when min(j.kind collate "C") = max(j.kind collate "C") then to_json(min(j.kind collate "C"))
                else to_json(array_agg(j.kind)) end,
           case when min(j.created_at) = max(j.created_at) then to_json(date_part('epoch', min(j.created_at)))
                else to_json(array(select date_part('epoch', c.at) from unnest(array_agg(j.created_at)) as c (at))) end,
           json_object_agg(j.pos, j.unusual) filter (where j.unusual is not null),
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
      insert into tallyman.claims (token, worker, stream, expires_at, stale_at, positions, max_pos)
      values (token, p_worker, stream, clock_timestamp() + p_lease_ms * interval '1 millisecond',
              clock_timestamp() + p_stale_ms * interval '1 millisecond', v_items, v_last);
      return next;
    end if;
    v_left := v_left - v_taken;
    v_left_of[v_q] := v_left_of[v_q] - v_taken;
    if v_taken > 0 and v_queue.rate_per_second is not null then
      update tallyman.queues q set rate_tokens = q.rate_tokens - v_taken where q.name = v_queue.name;
    end if;

    v_floor := v_stream.floor;
    v_xmax := v_stream.mark_xid;
    if p_late and (v_xmax is null or v_xmin >= v_xmax) then
      -- This scan saw everything there will ever be below the mark, as far as it went.
      v_floor := greatest(v_floor, least(v_stream.mark,
        case when v_taken < v_want then v_stream.mark else v_last + 1 end));
      if v_floor >= v_stream.mark then
        v_xmax := tallyman.fresh_xid(v_stream.id);
        v_stream.mark := greatest(v_stream.cursor, v_last + 1);
      end if;
    end if;
    update tallyman.streams s
       set cursor = greatest(s.cursor, v_last + 1), floor = v_floor, mark = v_stream.mark, mark_xid = v_xmax,
           first_token = coalesce(v_first_token, token)
     where s.id = v_stream.id
       and (v_taken > 0 or s.floor <> v_floor);
    exit when p_alone and v_taken > 0;
  end loop;

  if v_any_expired or v_alone_waits or v_limited then
    return query select null::bigint, null::integer, null::text, null::smallint, null::bigint[], null::json, null::text,
                        null::json, null::json, null::bigint[], null::json, v_any_expired, v_alone_waits, v_limited;
  end if;
end $$;

-- An enqueue in whose commit an idle worker takes its turn: the jobs are there and held at once, and the worker, which
-- has them already, need not ask for them. Answers null, and writes nothing, where the turn is somebody else's, where
-- other work comes first, and where the queue is paused or has limits.
--
-- Otherwise the claim's token, the stream, the time of the enqueue in microseconds since 1970, and the ids. As one array:
-- for one row, telling the client of its columns costs more than the row.
--
-- The stream stays locked until the commit is on disk, and whoever else wants a turn waits so long: this is for workers
-- that have nothing to do.
--
-- One statement, and no SET of its own: on an idle machine either saves a twentieth of the whole. The session has to
-- have enable_seqscan off (Database.keepSpare): a queue's table is empty at one ANALYZE and full at the next.
create function tallyman.enqueue_claimed(
  p_queue text, p_priority smallint, p_kind text, p_max_attempts smallint, p_tenant text, p_correlation text,
  p_trace text, p_payloads json, p_worker text, p_lease_ms integer, p_stale_ms integer
) returns bigint[]
language plpgsql as $$
declare
  v_stream integer;
  v_first_token bigint;
  v_token bigint;
  v_ids bigint[];
begin
  -- What commits between this look and the lock is passed over, as what commits late is by a claim, and found as that is.
  -- min(), not exists(): as a join this could be planned as a walk along every waiting job of every stream.
  with stream as (
    select s.id, s.first_token
      from tallyman.streams s
     where s.queue = p_queue and s.priority = p_priority and s.variant = ''
       and exists (select 1 from tallyman.queues q
                    where q.name = p_queue and q.paused_at is null and q.max_running is null and q.rate_per_second is null)
       and (select min(j.pos) from tallyman.jobs j where j.stream = s.id and j.lane is null and j.pos >= s.cursor) is null
       and (select min(l.pos) from tallyman.lanes l where l.stream = s.id and l.pos >= s.cursor) is null
       for update of s skip locked
  ), added as (
    -- The lock has taken a transaction id, as it must be before a position is drawn.
    insert into tallyman.jobs (id, pos, stream, max_attempts, kind, tenant_id, payload, correlation_id, trace)
    select i.n, i.n, i.stream, p_max_attempts, p_kind, p_tenant, i.payload, p_correlation, p_trace
      from (select nextval('tallyman.positions') as n, s.id as stream, e.payload
              from stream s, json_array_elements(p_payloads) as e (payload)) i
    returning id
  ), claim as (
    -- The token, too, is drawn under the lock: a claim below first_token, which others move under it, would be overlooked.
    insert into tallyman.claims (token, worker, stream, expires_at, stale_at, positions, max_pos)
    select nextval('tallyman.tokens'), p_worker, s.id, clock_timestamp() + p_lease_ms * interval '1 millisecond',
           clock_timestamp() + p_stale_ms * interval '1 millisecond', a.ids, a.last
      from stream s, (select array_agg(id) as ids, max(id) as last from added) a
    returning token, stream, positions, max_pos
  ), moved as (
    update tallyman.streams s set cursor = greatest(s.cursor, c.max_pos + 1) from claim c where s.id = c.stream
  )
  select s.id, s.first_token, c.token, c.positions into v_stream, v_first_token, v_token, v_ids from stream s, claim c;
  if v_stream is null then
    return null;
  end if;
  -- Where all claims are of this sort nobody else moves it. To look each time would cost more than the claim.
  if v_token > v_first_token + 100 then
    update tallyman.streams s
       set first_token = coalesce((select min(c.token) from tallyman.claims c
                                    where c.stream = v_stream and c.token >= v_first_token), v_token)
     where s.id = v_stream;
  end if;
  return array[v_token, v_stream, (extract(epoch from now()) * 1000000)::bigint] || v_ids;
end $$;

-- A transaction id greater than every one that was given out before this call: that of a subtransaction, read off a row
-- it wrote. The xmax of a snapshot would not do: it is one past the greatest id that has *completed*, and a transaction
-- with that very id may be running. The caller has the stream's row locked, and a transaction id of its own.
create function tallyman.fresh_xid(p_stream integer) returns xid8
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
  -- A row tells the low 32 bits; the rest is that of the transaction, or one more where they have begun anew.
  return ((v_top & ~4294967295) + v_low
          + case when v_low < v_top & 4294967295 then 4294967296 else 0 end)::text::xid8;
end $$;

-- How many more items a queue with fleet-wide limits may hand out now. Takes the queue's row, so that streams of
-- one queue cannot both spend the last of it.
create function tallyman.allowance(p_queue text) returns integer
language plpgsql as $$
declare
  v_queue tallyman.queues;
  v_allowance double precision := 2147483647;
  v_tokens double precision;
begin
  select * into v_queue from tallyman.queues q where q.name = p_queue for update;
  if v_queue.rate_per_second is not null then
    v_tokens := least(coalesce(v_queue.rate_burst, greatest(v_queue.rate_per_second, 1)),
      v_queue.rate_tokens
        + v_queue.rate_per_second * extract(epoch from clock_timestamp() - v_queue.rate_refilled_at));
    update tallyman.queues q set rate_tokens = v_tokens, rate_refilled_at = clock_timestamp() where q.name = p_queue;
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
       where s.queue = p_queue));
  end if;
  return greatest(v_allowance, 0);
end $$;

-- Puts what has fallen due on its stream: delayed and retried jobs, lanes whose head was waiting.
-- Answers in how many milliseconds the next one falls due, null for none. Relies on jobs_due and lanes_due.
create function tallyman.promote(p_limit integer, out promoted integer, out next_due_ms double precision)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  v_lanes integer;
begin
  promoted := 0;
  if exists (select 1 from tallyman.jobs j where j.lane is null and j.pos is null and j.scheduled_at <= now())
  or exists (select 1 from tallyman.lanes l where l.due_at <= now()) then
    perform pg_current_xact_id();
    perform set_config('synchronous_commit', 'off', true);
    with due as (
      select j.id from tallyman.jobs j
       where j.lane is null and j.pos is null and j.scheduled_at <= now()
       order by j.scheduled_at, j.id limit p_limit for update skip locked
    ), numbered as (
      select d.id, nextval('tallyman.positions') as pos from due d
    )
    update tallyman.jobs j set pos = n.pos from numbered n where j.id = n.id;
    get diagnostics promoted = row_count;
    with due as (
      select l.id from tallyman.lanes l
       where l.due_at <= now() order by l.due_at limit p_limit for update skip locked
    ), numbered as (
      select d.id, nextval('tallyman.positions') as pos from due d
    )
    update tallyman.lanes l set pos = n.pos, due_at = null from numbered n where l.id = n.id;
    get diagnostics v_lanes = row_count;
    promoted := promoted + v_lanes;
  end if;
  -- greatest() passes over a null, so nothing waiting must not come as far as there: it would read as "due now".
  select greatest(0, extract(epoch from next.at - clock_timestamp()) * 1000) into next_due_ms
    from (select least(
            (select min(j.scheduled_at) from tallyman.jobs j where j.lane is null and j.pos is null),
            (select min(l.due_at) from tallyman.lanes l where l.due_at is not null)) as at) next
   where next.at is not null;
end $$;

-- The heartbeat: everything a worker holds, in one statement. Answers the tokens that it still has.
create function tallyman.renew(p_worker text, p_lease_ms integer, p_stale_ms integer) returns setof bigint
language plpgsql as $$
begin
  -- A renewal that a crash of the server forgets ends the lease early: safe.
  perform set_config('synchronous_commit', 'off', true);
  return query
  update tallyman.claims c
     set renewed_at = clock_timestamp(),
         expires_at = clock_timestamp() + p_lease_ms * interval '1 millisecond',
         stale_at = clock_timestamp() + p_stale_ms * interval '1 millisecond'
   where c.worker = p_worker and c.expires_at > clock_timestamp() and c.stale_at > clock_timestamp()
  returning c.token;
end $$;

-- Hands back what was claimed and not started. Costs no attempt. The freed positions lie behind the cursor, so the
-- cursor goes back to them. Lock order: claim before stream, as in recover.
create function tallyman.release(p_worker text, p_tokens bigint[], p_positions bigint[]) returns void
language plpgsql as $$
declare
  v_claim record;
  v_lowest bigint;
begin
  for v_claim in
    select c.token, c.stream, c.positions from tallyman.claims c
     where c.token = any (p_tokens) and c.worker = p_worker order by c.token for update
  loop
    select min(r.pos) into v_lowest
      from unnest(p_tokens, p_positions) as r (token, pos) where r.token = v_claim.token;
    update tallyman.claims c
       set positions = array(select p from unnest(v_claim.positions) as p
                             except
                             select r.pos from unnest(p_tokens, p_positions) as r (token, pos)
                              where r.token = v_claim.token)
     where c.token = v_claim.token;
    delete from tallyman.claims c where c.token = v_claim.token and cardinality(c.positions) = 0;
    update tallyman.streams s set cursor = least(s.cursor, v_lowest), floor = least(s.floor, v_lowest)
     where s.id = v_claim.stream;
  end loop;
end $$;
