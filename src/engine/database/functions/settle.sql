-- Settle: every write of a worker about a claimed job passes here, and is fenced here.

-- The claims among p_tokens that this worker still holds, locked against recovery until the caller's transaction
-- ends. KEY SHARE: two settles of one claim and a renewal go on side by side, taking the claim away waits.
-- The worker's id is new at every start and is part of the match: a token drawn under an asynchronous commit can be
-- drawn again after a crash of the server, by another worker.
create or replace function tallyman.held_tokens(p_worker text, p_tokens bigint[]) returns bigint[]
language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
begin
  return (
    select coalesce(array_agg(c.token), '{}') from (
      select c.token from tallyman.claims c
       where c.token = any (p_tokens) and c.worker = p_worker
         and c.expires_at > clock_timestamp() and c.stale_at > clock_timestamp()
       order by c.token for key share) c);
end $$;

-- Completes jobs and lets go of lanes.
--
-- A job is named by its position, which is drawn again whenever it is retried: what was cancelled and redriven
-- meanwhile is not mistaken for what this worker ran. Free jobs by stream and position, jobs in lanes by lane and seq.
--
-- `lost` lists the claims that are no longer this worker's; if there is one, nothing at all was written, and the caller
-- asks again without it. `missing` lists the positions of jobs that were cancelled meanwhile. `let_go` lists the lanes
-- that were let go, and `requeued` tells whether one of them has more work. A lane into which a writer is writing cannot
-- come to rest now: it stays with the caller, who looks for more jobs in it and asks again.
--
-- Almost always all of the jobs are there and none has a dedupe key: a plain DELETE will do, at less than half the cost.
-- If it finds other than the expected number, everything is undone (TM010) and the caller asks again without one.
create or replace function tallyman.settle(
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
  p_lane_more boolean[],         -- it knows of work that is left
  p_drop bigint[],
  p_expected integer,            -- how many jobs; null: some have a dedupe key, or may have been cancelled
  out lost bigint[], out missing bigint[], out let_go bigint[], out requeued boolean
)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
  v_held bigint[] := tallyman.held_tokens(p_worker, p_claims);
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
    raise exception 'jobs were cancelled meanwhile' using errcode = 'TM010';
  end if;

  if cardinality(p_lanes) > 0 then
    select g.requeued, g.lanes into requeued, let_go
      from tallyman.let_go(p_lanes, p_lane_positions, p_lane_floors, p_lane_more) g;
    if cardinality(let_go) < cardinality(p_lanes) then
      -- Those that an earlier try let go, whose answer was lost, are let go as well.
      let_go := array(select d.id from unnest(p_lanes, p_lane_positions) as d (id, pos)
                       where not exists (select 1 from tallyman.lanes l where l.id = d.id and l.pos = d.pos));
    end if;
  end if;
  perform tallyman.drop_claims(p_worker, p_drop);
end $$;

-- Completes jobs inside a transaction with their effects, all of them, or raises TM011 and the effects go with it. Sent
-- together with the COMMIT: a worker that is frozen in between would hold the claim, and others could not take it over.
create or replace function tallyman.complete_or_raise(
  p_worker text, p_claims bigint[], p_streams integer[], p_positions bigint[], p_lanes bigint[], p_seqs bigint[],
  p_keep_ms double precision, p_expected integer
) returns void
language plpgsql as $$
declare
  v_settled record;
begin
  v_settled := tallyman.settle(p_worker, p_claims, p_streams, p_positions, p_lanes, p_seqs, p_seqs, p_seqs, '{}',
                               p_keep_ms, null, null, null, null, null, p_expected);
  if cardinality(v_settled.lost) > 0 or cardinality(v_settled.missing) > 0 then
    raise exception 'the lease of a job was taken over, or the job was cancelled; nothing was written'
      using errcode = 'TM011';
  end if;
end $$;

-- Lets go of lanes that the caller holds, as far as that is possible at once. A lane with work left goes back to its
-- stream. One without may only come to rest while no writer is between its look at the lane and its commit: the
-- writer would not wake it, and this does not see the writer's job. So coming to rest takes the gate; where a writer has
-- it, the lane is kept. Nothing here waits. Returns the lanes that were let go, and whether one is back on its stream.
create or replace function tallyman.let_go(
  p_lanes bigint[], p_positions bigint[], p_floors bigint[], p_more boolean[],
  out lanes bigint[], out requeued boolean
)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
  v_lanes bigint[];
  v_floors bigint[];
begin
  perform pg_current_xact_id();
  requeued := false;
  lanes := '{}';
  if array_position(p_more, false) is not null then
    with locked as (
      select l.id, case when l.rewound then l.floor else greatest(l.floor, d.floor) end as floor
        from unnest(p_lanes, p_positions, p_floors, p_more) as d (id, pos, floor, more)
        join tallyman.lanes l on l.id = d.id and l.pos = d.pos
        join tallyman.lane_gates g on g.lane = d.id
       where not d.more and not l.rewound and l.blocked_at is null
       order by l.id
         for update of l, g skip locked
    )
    select coalesce(array_agg(l.id), '{}'), coalesce(array_agg(l.floor), '{}') into lanes, v_floors from locked l;
    -- A statement of its own: its snapshot is younger than the locks, so a job that a writer committed into the
    -- lane before we got the gate is seen here, and one that comes after finds the lane at rest and wakes it.
    requeued := tallyman.rest_lanes(lanes, v_floors, true);
  end if;
  -- With work left, or for a person to decide: the gate is not needed.
  if cardinality(lanes) < cardinality(p_lanes) then
    with locked as (
      select l.id, case when l.rewound then l.floor else greatest(l.floor, d.floor) end as floor
        from unnest(p_lanes, p_positions, p_floors, p_more) as d (id, pos, floor, more)
        join tallyman.lanes l on l.id = d.id and l.pos = d.pos
       where d.more or l.rewound or l.blocked_at is not null
       order by l.id
         for update of l skip locked
    )
    select array_agg(l.id), array_agg(l.floor) into v_lanes, v_floors from locked l;
    if v_lanes is not null then
      requeued := tallyman.rest_lanes(v_lanes, v_floors, false) or requeued;
      lanes := lanes || v_lanes;
    end if;
  end if;
end $$;

-- Completes jobs that have no dedupe key, all of which should be there; returns how many were. History is read from the
-- snapshot that the DELETE has, so it gets the same jobs if the DELETE finds all of them: otherwise, undo it.
create or replace function tallyman.complete_all(
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

-- Completes those of the jobs that are there, and ends their dedupe keys; returns the positions of those that are not.
-- One statement for free jobs and one for those in lanes, each on the indexes that complete_all relies on.
create or replace function tallyman.complete_exactly(
  p_worker text, p_streams integer[], p_positions bigint[], p_job_lanes bigint[], p_first_seqs bigint[],
  p_last_seqs bigint[], p_seqs bigint[], p_superseded bigint[], p_keep_ms double precision
) returns bigint[]
language plpgsql as $$
declare
  v_done bigint[];
  v_done_in_lanes bigint[];
begin
  -- Jobs before keys, as cancel does, and several keys in sorted order, as enqueue_full does.
  perform 1 from tallyman.jobs j
   where j.stream = any (p_streams) and j.lane is null and j.pos = any (p_positions) and j.dedupe_key is not null
     for update;
  perform 1 from unnest(p_job_lanes, p_first_seqs, p_last_seqs) as d (lane, first, last)
    join tallyman.jobs j on j.lane = d.lane and j.pos between d.first and d.last
   where j.dedupe_key is not null
     for update of j;
  perform 1 from tallyman.dedupe_keys k
    join (select j.tenant_id, j.kind, j.dedupe_key from tallyman.jobs j
           where j.stream = any (p_streams) and j.lane is null and j.pos = any (p_positions) and j.dedupe_key is not null
          union all
          select j.tenant_id, j.kind, j.dedupe_key
            from unnest(p_job_lanes, p_first_seqs, p_last_seqs) as d (lane, first, last)
            join tallyman.jobs j on j.lane = d.lane and j.pos between d.first and d.last
           where j.dedupe_key is not null) j
      on k.tenant_id = j.tenant_id and k.kind = j.kind and k.key = j.dedupe_key
   order by k.tenant_id, k.kind, k.key for update of k;
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

-- Decides what a lane that is no longer held does next: back on its stream, waiting for its head, or at rest.
-- The caller has the lanes' rows locked, and says below what nothing is pending; to let a lane rest (p_may_rest) it has
-- its gate, too. Otherwise a lane in which nothing is seen goes back to its stream: its next holder lets it rest.
-- Returns whether one went back to its stream. Relies on jobs_in_lane.
create or replace function tallyman.rest_lanes(p_lanes bigint[], p_floors bigint[], p_may_rest boolean) returns boolean
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off
set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
  v_requeued boolean;
begin
  with rested as (
    update tallyman.lanes l
       set rewound = false,
           pos = case when l.blocked_at is null and (h.scheduled_at <= now() or h.pos is null and not p_may_rest)
                      then nextval('tallyman.positions') end,
           due_at = case when l.blocked_at is null and h.scheduled_at > now() then h.scheduled_at end,
           stream = coalesce(h.stream, l.stream),
           floor = coalesce(h.pos, d.floor),
           rested_at = now()
      from unnest(p_lanes, p_floors) as d (id, floor)
      left join lateral (select j.pos, j.scheduled_at, j.stream from tallyman.jobs j
                          where j.lane = d.id and j.pos >= d.floor order by j.pos limit 1) h on true
     where l.id = d.id
    returning l.pos
  )
  select coalesce(bool_or(r.pos is not null), false) into v_requeued from rested r;
  return v_requeued;
end $$;
