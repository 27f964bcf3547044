-- Settle: every write of a worker about a claimed job passes here, and is fenced here.

-- The claims among p_tokens that this worker still holds, locked against recovery until the caller's transaction
-- ends. KEY SHARE: two settles of one claim and a renewal go on side by side, taking the claim away waits.
-- The worker's id is new at every start and is part of the match: a token drawn under an asynchronous commit can be
-- drawn again after a crash of the server, by somebody else.
create function tallyman.held_tokens(p_worker text, p_tokens bigint[]) returns bigint[]
language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
begin
  return (
    select coalesce(array_agg(c.token), '{}') from (
      select c.token from tallyman.claims c
       where c.token = any (p_tokens) and c.worker = p_worker
         and c.expires_at > clock_timestamp() and c.stale_at > clock_timestamp()
       for key share) c);
end $$;

-- Completes jobs and lets go of lanes.
--
-- A job is named by its position, which is drawn anew whenever it goes round again: what was cancelled and redriven
-- meanwhile is not mistaken for what this worker ran. Free jobs by stream and position, jobs in lanes by lane and seq.
--
-- `lost` lists the claims that are no longer this worker's; if there is one, nothing at all was written, and the caller
-- asks again without it. `missing` lists the positions of jobs that were cancelled meanwhile. `let_go` lists the lanes
-- that were let go; one that a writer has locked is not waited for: the caller asks again later.
--
-- Almost always all of the jobs are there and none has a dedupe key: a plain DELETE will do, at less than half the cost.
-- If it finds other than the expected number, everything is undone (TM001) and the caller asks again without one.
create function tallyman.settle(
  p_worker text,
  p_claims bigint[],             -- the tokens of everything below
  p_streams integer[],           -- of the free jobs, each once
  p_positions bigint[],
  p_job_lanes bigint[],          -- of the jobs in lanes, each once
  p_first_seqs bigint[], p_last_seqs bigint[],
  p_seqs bigint[],               -- all of them; not needed where p_expected is given
  p_superseded bigint[],         -- seqs of those that were not run
  p_keep_ms double precision,    -- how long history is kept; 0: not written
  p_lanes bigint[], p_lane_positions bigint[],
  p_lane_floors bigint[],        -- nothing pending below, as far as the worker went
  p_drop bigint[],
  p_expected integer,            -- how many jobs; null: some have a dedupe key, or may have been cancelled
  out lost bigint[], out missing bigint[], out let_go bigint[]
)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
  v_held bigint[] := tallyman.held_tokens(p_worker, p_claims);
  v_floors bigint[];
begin
  if cardinality(v_held) < cardinality(p_claims) then
    lost := array(select unnest(p_claims) except select unnest(v_held));
    return;
  end if;

  if p_expected is null then
    missing := tallyman.complete_exactly(p_worker, p_streams, p_positions, p_job_lanes, p_first_seqs, p_last_seqs, p_seqs,
                                         p_superseded, p_keep_ms);
  elsif p_expected <> tallyman.complete_all(p_worker, p_streams, p_positions, p_job_lanes, p_first_seqs, p_last_seqs,
                                            p_superseded, p_keep_ms) then
    raise exception 'jobs were cancelled meanwhile' using errcode = 'TM001';
  end if;

  if cardinality(p_lanes) > 0 then
    perform pg_current_xact_id();
    with locked as (
      select l.id, case when l.rewound then l.floor else greatest(l.floor, d.floor) end as floor
        from unnest(p_lanes, p_lane_positions, p_lane_floors) as d (id, pos, floor)
        join tallyman.lanes l on l.id = d.id and l.pos = d.pos
       order by l.id
         for update of l skip locked
    )
    select array_agg(l.id), array_agg(l.floor) into let_go, v_floors from locked l;
    -- A statement of its own: its snapshot is younger than the locks, so a job that a writer committed into the
    -- lane before we got the lock is seen here, and one that comes after finds the lane at rest and wakes it.
    perform tallyman.rest_lanes(let_go, v_floors);
    if coalesce(cardinality(let_go), 0) < cardinality(p_lanes) then
      -- Those that an earlier try let go, whose answer was lost, are let go as well; those that a writer has are not.
      let_go := array(select d.id from unnest(p_lanes, p_lane_positions) as d (id, pos)
                       where not exists (select 1 from tallyman.lanes l where l.id = d.id and l.pos = d.pos));
    end if;
  end if;

  if p_drop is not null then
    delete from tallyman.claims c where c.token = any (p_drop) and c.worker = p_worker;
  end if;
end $$;

-- Completes jobs that have no dedupe key, all of which should be there; answers how many were. History is read from the
-- snapshot that the DELETE has, so it gets the same jobs if the DELETE finds all of them: otherwise, undo it.
create function tallyman.complete_all(
  p_worker text, p_streams integer[], p_positions bigint[], p_job_lanes bigint[], p_first_seqs bigint[],
  p_last_seqs bigint[], p_superseded bigint[], p_keep_ms double precision
) returns integer
language plpgsql as $$
declare
  v_free integer := 0;
  v_in_lanes integer := 0;
begin
  -- Relies on jobs_ready: one walk along the index.
  if cardinality(p_positions) > 0 then
    if p_keep_ms > 0 then
      with kept as (
        insert into tallyman.history
          (id, finished_at, status, stream, attempts, max_attempts, created_at, scheduled_at, kind,
           tenant_id, payload, worker, correlation_id, last_error)
        select j.id, now(), 'SUCCEEDED', j.stream, j.attempts + 1, j.max_attempts, j.created_at, j.scheduled_at, j.kind,
               j.tenant_id, j.payload, p_worker, j.correlation_id, j.last_error
          from tallyman.jobs j
         where j.stream = any (p_streams) and j.lane is null and j.pos = any (p_positions)
      )
      delete from tallyman.jobs j
       where j.stream = any (p_streams) and j.lane is null and j.pos = any (p_positions);
    else
      delete from tallyman.jobs j
       where j.stream = any (p_streams) and j.lane is null and j.pos = any (p_positions);
    end if;
    get diagnostics v_free = row_count;
  end if;

  -- Relies on jobs_in_lane: one walk a lane. Its jobs are run one after another and new ones come behind them, so all
  -- there is from the first to the last is what this worker has run.
  if cardinality(p_job_lanes) > 0 then
    if p_keep_ms > 0 then
      with kept as (
        insert into tallyman.history
          (id, finished_at, status, stream, attempts, max_attempts, created_at, scheduled_at, kind,
           tenant_id, payload, lane, seq, worker, correlation_id, last_error)
        select j.id, now(), case when j.pos = any (p_superseded) then 'SUPERSEDED' else 'SUCCEEDED' end, j.stream,
               j.attempts + 1, j.max_attempts, j.created_at, j.scheduled_at, j.kind, j.tenant_id, j.payload, d.key, j.pos,
               p_worker, j.correlation_id, j.last_error
          -- OFFSET 0: each lane is looked up once, not once for each of its jobs.
          from (select d.*, l.key from unnest(p_job_lanes, p_first_seqs, p_last_seqs) as d (lane, first, last)
                  join tallyman.lanes l on l.id = d.lane offset 0) d
          join tallyman.jobs j on j.lane = d.lane and j.pos between d.first and d.last
         -- Lanes mix the ids. In their order fewer pages of history's index are touched again and again.
         order by j.id
      )
      delete from tallyman.jobs j using unnest(p_job_lanes, p_first_seqs, p_last_seqs) as d (lane, first, last)
       where j.lane = d.lane and j.pos between d.first and d.last;
    else
      delete from tallyman.jobs j using unnest(p_job_lanes, p_first_seqs, p_last_seqs) as d (lane, first, last)
       where j.lane = d.lane and j.pos between d.first and d.last;
    end if;
    get diagnostics v_in_lanes = row_count;
  end if;
  return v_free + v_in_lanes;
end $$;

-- Completes those of the jobs that are there, and ends their dedupe keys; answers the positions of those that are not.
-- One statement for free jobs and one for those in lanes, each on the indexes that complete_all relies on.
create function tallyman.complete_exactly(
  p_worker text, p_streams integer[], p_positions bigint[], p_job_lanes bigint[], p_first_seqs bigint[],
  p_last_seqs bigint[], p_seqs bigint[], p_superseded bigint[], p_keep_ms double precision
) returns bigint[]
language plpgsql as $$
declare
  v_done bigint[];
  v_done_in_lanes bigint[];
begin
  if cardinality(p_positions) > 0 then
    with done as (
      delete from tallyman.jobs j
       where j.stream = any (p_streams) and j.lane is null and j.pos = any (p_positions)
      returning j.*
    ), kept as (
      insert into tallyman.history
        (id, finished_at, status, stream, attempts, max_attempts, created_at, scheduled_at, kind,
         tenant_id, payload, worker, correlation_id, dedupe_key, last_error)
      select d.id, now(), 'SUCCEEDED', d.stream, d.attempts + 1, d.max_attempts, d.created_at, d.scheduled_at,
             d.kind, d.tenant_id, d.payload, p_worker, d.correlation_id, d.dedupe_key, d.last_error
        from done d where p_keep_ms > 0
    ), keys as (
      update tallyman.dedupe_keys k
         set expires_at = now() + coalesce(k.keep, p_keep_ms * interval '1 millisecond')
        from done d
       where d.dedupe_key is not null
         and k.tenant_id = d.tenant_id and k.kind = d.kind and k.key = d.dedupe_key
    )
    select array_agg(d.pos) into v_done from done d;
  end if;

  if cardinality(p_seqs) > 0 then
    with done as (
      delete from tallyman.jobs j using unnest(p_job_lanes, p_first_seqs, p_last_seqs) as d (lane, first, last)
       where j.lane = d.lane and j.pos between d.first and d.last
      returning j.*
    ), kept as (
      insert into tallyman.history
        (id, finished_at, status, stream, attempts, max_attempts, created_at, scheduled_at, kind,
         tenant_id, payload, lane, seq, worker, correlation_id, dedupe_key, last_error)
      select d.id, now(), case when d.pos = any (p_superseded) then 'SUPERSEDED' else 'SUCCEEDED' end, d.stream,
             d.attempts + 1, d.max_attempts, d.created_at, d.scheduled_at, d.kind, d.tenant_id, d.payload, l.key, d.pos,
             p_worker, d.correlation_id, d.dedupe_key, d.last_error
        from done d join tallyman.lanes l on l.id = d.lane
       where p_keep_ms > 0
    ), keys as (
      update tallyman.dedupe_keys k
         set expires_at = now() + coalesce(k.keep, p_keep_ms * interval '1 millisecond')
        from done d
       where d.dedupe_key is not null
         and k.tenant_id = d.tenant_id and k.kind = d.kind and k.key = d.dedupe_key
    )
    select array_agg(d.pos) into v_done_in_lanes from done d;
  end if;
  return array(select unnest(p_positions || p_seqs) except select unnest(v_done || v_done_in_lanes));
end $$;

-- Decides what a lane that nobody holds any more does next: back on its stream, waiting for its head, or at rest.
-- The caller has the lanes' rows locked, and says below what nothing is pending. Relies on jobs_in_lane.
create function tallyman.rest_lanes(p_lanes bigint[], p_floors bigint[]) returns void
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
begin
  update tallyman.lanes l
     set rewound = false,
         pos = case when l.blocked_at is null and h.scheduled_at <= now() then nextval('tallyman.positions') end,
         due_at = case when l.blocked_at is null and h.scheduled_at > now() then h.scheduled_at end,
         stream = coalesce(h.stream, l.stream),
         floor = coalesce(h.pos, d.floor),
         rested_at = now()
    from unnest(p_lanes, p_floors) as d (id, floor)
    left join lateral (select j.pos, j.scheduled_at, j.stream from tallyman.jobs j
                        where j.lane = d.id and j.pos >= d.floor order by j.pos limit 1) h on true
   where l.id = d.id;
end $$;

-- Takes one attempt from each job and decides: again later, FAILED, or DEAD_LETTER. Not fenced: callers are.
-- items: [{id, pos, error: {...}, delay_ms, permanent}]
create function tallyman.attempt_failed(p_items json, p_worker text, p_keep_ms double precision)
returns table (id bigint, status text, lane bigint)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
#variable_conflict use_column
begin
  return query
  with item as materialized (
    select i.* from json_to_recordset(p_items)
      as i (id bigint, pos bigint, error json, delay_ms double precision, permanent boolean)
  ), again as (
    update tallyman.jobs j
       set attempts = j.attempts + 1,
           last_error = tallyman.error_of(i.error, j.last_error, j.attempts + 1, p_worker),
           scheduled_at = now() + i.delay_ms * interval '1 millisecond',
           pos = case when j.lane is not null then j.pos end
      from item i
     where j.id = i.id and j.pos = i.pos and not coalesce(i.permanent, false) and j.attempts + 1 < j.max_attempts
    returning j.id, j.lane
  ), ended as (
    delete from tallyman.jobs j using item i
     where j.id = i.id and j.pos = i.pos and (coalesce(i.permanent, false) or j.attempts + 1 >= j.max_attempts)
    returning j.*, coalesce(i.permanent, false) as permanent,
              tallyman.error_of(i.error, j.last_error, j.attempts + 1, p_worker) as error
  ), named as materialized (
    select e.*, s.queue, s.priority, l.key as lane_key, l.policy
      from ended e join tallyman.streams s on s.id = e.stream left join tallyman.lanes l on l.id = e.lane
  ), failed as (
    insert into tallyman.history
      (id, finished_at, status, stream, attempts, max_attempts, created_at, scheduled_at, kind, tenant_id,
       payload, lane, seq, worker, correlation_id, dedupe_key, last_error)
    select n.id, now(), 'FAILED', n.stream, n.attempts + 1, n.max_attempts, n.created_at, n.scheduled_at, n.kind, n.tenant_id, n.payload, n.lane_key, case when n.lane is not null then n.pos end, p_worker,
           n.correlation_id, n.dedupe_key, n.error
      from named n where n.permanent
  ), buried as (
    insert into tallyman.dead_letters
      (id, queue, kind, tenant_id, entity_id, priority, attempts, max_attempts, redrives, created_at,
       first_failed_at, last_failed_at, payload, lane, lane_policy, latest_only, seq, correlation_id, dedupe_key,
       last_error)
    select n.id, n.queue, n.kind, n.tenant_id, n.id::text, n.priority, n.attempts + 1, n.max_attempts,
           coalesce((n.error ->> 'redrives')::integer, 0), n.created_at, (n.error ->> 'first_failed_at')::timestamptz,
           now(), n.payload, n.lane_key, n.policy, n.latest_only, case when n.lane is not null then n.pos end,
           n.correlation_id, n.dedupe_key, n.error
      from named n where not n.permanent
  ), keys as (
    -- A dead letter may be redriven: its key stays taken until that is decided.
    update tallyman.dedupe_keys k set expires_at = now() + coalesce(k.keep, p_keep_ms * interval '1 millisecond')
      from named n where n.permanent and n.dedupe_key is not null
       and k.tenant_id = n.tenant_id and k.kind = n.kind and k.key = n.dedupe_key
  ), blocked as (
    update tallyman.lanes l set blocked_at = now(), blocked_by = n.id
      from named n where l.id = n.lane and n.policy = 'block'
  )
  select a.id, 'QUEUED', a.lane from again a
  union all
  select n.id, case when n.permanent then 'FAILED' else 'DEAD_LETTER' end, n.lane from named n;
end $$;

-- last_error: what went wrong, and since when.
create function tallyman.error_of(p_error json, p_before json, p_attempt integer, p_worker text) returns json
language sql as $$
  select json_build_object(
    'code', p_error ->> 'code', 'message', p_error ->> 'message', 'stack', p_error ->> 'stack',
    'attempt', p_attempt, 'worker', p_worker, 'at', to_json(clock_timestamp()),
    'first_failed_at', coalesce(p_before -> 'first_failed_at', to_json(clock_timestamp())),
    'redrives', coalesce((p_before ->> 'redrives')::integer, 0))
$$;

-- A worker reports failures. items as in attempt_failed, plus `token`.
create function tallyman.fail(p_worker text, p_items json, p_keep_ms double precision)
returns table (id bigint, status text, lane bigint)
language plpgsql as $$
#variable_conflict use_column
declare
  v_held bigint[] := tallyman.held_tokens(p_worker,
    array(select distinct i.token from json_to_recordset(p_items) as i (token bigint)));
begin
  return query
  select f.* from tallyman.attempt_failed(
    (select coalesce(json_agg(i), '[]') from json_array_elements(p_items) i
      where (i ->> 'token')::bigint = any (v_held)), p_worker, p_keep_ms) f;
  return query
  select i.id, 'LOST', null::bigint from json_to_recordset(p_items) as i (id bigint, token bigint)
   where not i.token = any (v_held);
end $$;

-- Recover: takes claims away whose lease is past, or whose worker gave no sign for too long.
--
-- Who killed the worker? If everything it held was one job, that job: it loses an attempt. Otherwise nobody loses
-- one: what it held is moved to the `alone` stream, claimed one at a time from then on, and the one that kills
-- workers is found there, while its neighbours are not buried with it.
create function tallyman.recover(p_delays json, p_keep_ms double precision)
returns table (worker text, token bigint, freed integer, counted bigint, status text)
language plpgsql
set jit = off
as $$
#variable_conflict use_column
declare
  v_claim record;
  v_alone integer;
  v_jobs bigint[];
  v_lanes bigint[];
  v_busy bigint[];
  v_lowest bigint;
  v_others boolean;
  v_suspect tallyman.jobs;
begin
  perform pg_current_xact_id();
  for v_claim in
    select c.*, s.queue, s.priority, s.variant
      from tallyman.claims c join tallyman.streams s on s.id = c.stream
     where c.expires_at <= clock_timestamp() or c.stale_at <= clock_timestamp()
     order by c.token for update of c skip locked
  loop
    v_jobs := array(select j.id from tallyman.jobs j
                     where j.stream = v_claim.stream and j.lane is null and j.pos = any (v_claim.positions));
    v_lanes := array(select l.id from tallyman.lanes l
                      where l.stream = v_claim.stream and l.pos = any (v_claim.positions)
                        for update skip locked);
    v_busy := array(select l.pos from tallyman.lanes l
                     where l.stream = v_claim.stream and l.pos = any (v_claim.positions)
                       and not l.id = any (v_lanes));
    v_others := exists (
      select 1 from tallyman.claims c
       where c.worker = v_claim.worker and c.token <> v_claim.token
         and (exists (select 1 from tallyman.jobs j
                       where j.stream = c.stream and j.lane is null and j.pos = any (c.positions))
           or exists (select 1 from tallyman.lanes l where l.stream = c.stream and l.pos = any (c.positions))));
    delete from tallyman.claims c where c.token = v_claim.token;

    worker := v_claim.worker;
    token := v_claim.token;
    freed := cardinality(v_jobs) + cardinality(v_lanes) + cardinality(v_busy);
    counted := null;
    status := null;

    v_suspect := null;
    if not v_others and freed = 1 and cardinality(v_jobs) = 1 then
      select j.* into v_suspect from tallyman.jobs j where j.id = v_jobs[1];
    elsif not v_others and freed = 1 and cardinality(v_lanes) = 1 and v_claim.variant = 'alone' then
      -- A lane that is claimed alone runs its head only.
      select j.* into v_suspect
        from tallyman.jobs j join tallyman.lanes l on l.id = j.lane
       where j.lane = v_lanes[1] and j.pos >= l.floor order by j.pos limit 1;
    end if;

    if v_suspect.id is not null then
      select f.id, f.status into counted, status
        from tallyman.attempt_failed(json_build_array(json_build_object(
          'id', v_suspect.id, 'pos', v_suspect.pos,
          'error', json_build_object('code', 'LEASE_EXPIRED', 'message', 'lease expired, worker ' || v_claim.worker),
          'delay_ms', coalesce((p_delays -> v_suspect.kind ->> v_suspect.attempts)::double precision,
                               least(1024, 2 ^ (v_suspect.attempts + 1)) * 1000 * (1 + random() * 0.1)))),
          v_claim.worker, p_keep_ms) f;
      if v_suspect.lane is not null then
        perform tallyman.rest_lanes(array[v_suspect.lane], array[v_suspect.pos]);
        update tallyman.lanes l
           set stream = tallyman.stream_of(v_claim.queue, v_claim.priority, 'alone')
         where l.id = v_suspect.lane and status = 'QUEUED';
      else
        update tallyman.jobs j
           set stream = tallyman.stream_of(v_claim.queue, v_claim.priority, 'alone')
         where j.id = v_suspect.id;
      end if;
    elsif cardinality(v_jobs) + cardinality(v_lanes) > 0 then
      v_alone := tallyman.stream_of(v_claim.queue, v_claim.priority, 'alone');
      update tallyman.jobs j set stream = v_alone where j.id = any (v_jobs);
      update tallyman.lanes l set stream = v_alone where l.id = any (v_lanes);
      v_lowest := (select min(p) from unnest(v_claim.positions) p);
      update tallyman.streams s set cursor = least(s.cursor, v_lowest), floor = least(s.floor, v_lowest)
       where s.id = v_alone;
    end if;
    if cardinality(v_busy) > 0 then
      -- A writer has these lanes locked. They are not waited for: they stay on the stream they are on.
      v_lowest := (select min(p) from unnest(v_busy) p);
      update tallyman.streams s set cursor = least(s.cursor, v_lowest), floor = least(s.floor, v_lowest)
       where s.id = v_claim.stream;
    end if;
    return next;
  end loop;
end $$;

-- A worker hands over items whose kind it does not know: they wait on a stream that only workers which know the
-- kind look at. For a lane the kind is that of its head.
create function tallyman.hand_over(
  p_worker text, p_tokens bigint[], p_streams integer[], p_positions bigint[], p_kinds text[]
) returns void
language plpgsql as $$
declare
  v_held bigint[] := tallyman.held_tokens(p_worker, p_tokens);
  v_item record;
  v_target integer;
begin
  for v_item in
    select d.*, s.queue, s.priority
      from unnest(p_tokens, p_streams, p_positions, p_kinds) as d (token, stream, pos, kind)
      join tallyman.streams s on s.id = d.stream
     where d.token = any (v_held) order by d.pos
  loop
    v_target := tallyman.stream_of(v_item.queue, v_item.priority, 'kind:' || v_item.kind);
    update tallyman.jobs j set stream = v_target
     where j.stream = v_item.stream and j.lane is null and j.pos = v_item.pos;
    update tallyman.lanes l set stream = v_target where l.stream = v_item.stream and l.pos = v_item.pos;
    update tallyman.claims c set positions = array_remove(c.positions, v_item.pos) where c.token = v_item.token;
    update tallyman.streams s set cursor = least(s.cursor, v_item.pos), floor = least(s.floor, v_item.pos)
     where s.id = v_target;
  end loop;
  delete from tallyman.claims c where c.token = any (v_held) and cardinality(c.positions) = 0;
end $$;
