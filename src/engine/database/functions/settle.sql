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
-- Almost always all of the jobs are there and none has a dedupe key: plain DELETEs do (complete.sql), at less than half the
-- cost. If they find other than the expected number, everything is undone (TM010) and the caller asks again without one.
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
  v_done tallyman.done_jobs := row(p_worker, p_streams, p_positions, p_job_lanes, p_first_seqs, p_last_seqs, p_seqs,
                                   p_superseded, p_keep_ms);
begin
  if cardinality(v_held) < cardinality(p_claims) then
    lost := array(select unnest(p_claims) except select unnest(v_held));
    return;
  end if;

  if p_expected is null then
    missing := tallyman.complete_exactly(v_done);
  elsif p_expected <> tallyman.complete_free(v_done) + tallyman.complete_in_lanes(v_done) then
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
