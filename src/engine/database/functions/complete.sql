-- Completing jobs: they leave tallyman.jobs and go to history. Called by settle, which has fenced them and whose planner
-- settings apply.
--
-- Free jobs are found on jobs_ready, in one walk along the index; jobs in lanes on jobs_in_lane, in one walk a lane. The jobs
-- of a lane are run one after another and new ones come behind them, so all there is from the first to the last is what this
-- worker has run.
--
-- Plans are kept while tables grow (statistics.sql). So that a plan made for an empty table never compares every lane with every
-- job, lanes and jobs are looked up by LATERAL ... OFFSET 0, which has one join order, and rows are changed by their ctid.

-- Completes free jobs without dedupe keys, all of which should be there; returns how many were. History is read from the
-- snapshot that the DELETE has, so it gets the same jobs if the DELETE finds all of them: otherwise the caller undoes it.
create or replace function tallyman.complete_free(p_done tallyman.done_jobs) returns integer
language plpgsql as $$
declare
  v_count integer := 0;
begin
  if cardinality(p_done.positions) > 0 then
    with kept as (
      insert into tallyman.history
        (id, finished_at, status, stream, attempts, max_attempts, created_at, scheduled_at, kind,
         tenant_id, payload, worker, correlation_id, last_error)
      select j.id, now(), 'SUCCEEDED', j.stream, j.attempts + 1, j.max_attempts, j.created_at, j.scheduled_at, j.kind,
             j.tenant_id, j.payload, p_done.worker, j.correlation_id, j.last_error
        from tallyman.jobs j
       where p_done.keep_ms > 0
         and j.stream = any (p_done.streams) and j.lane is null and j.pos = any (p_done.positions)
    )
    delete from tallyman.jobs j
     where j.stream = any (p_done.streams) and j.lane is null and j.pos = any (p_done.positions);
    get diagnostics v_count = row_count;
  end if;
  return v_count;
end $$;

-- The same for jobs in lanes. A job that was given a new position meanwhile is not deleted: that is greater than all of
-- those that are done here.
create or replace function tallyman.complete_in_lanes(p_done tallyman.done_jobs) returns integer
language plpgsql as $$
declare
  v_count integer := 0;
  v_last bigint := (select max(s) from unnest(p_done.last_seqs) s);
begin
  if cardinality(p_done.lanes) > 0 then
    with kept as (
      insert into tallyman.history
        (id, finished_at, status, stream, attempts, max_attempts, created_at, scheduled_at, kind,
         tenant_id, payload, lane, seq, worker, correlation_id, last_error)
      select j.id, now(), case when j.pos = any (p_done.superseded) then 'SUPERSEDED' else 'SUCCEEDED' end, j.stream,
             j.attempts + 1, j.max_attempts, j.created_at, j.scheduled_at, j.kind, j.tenant_id, j.payload, d.key, j.pos,
             p_done.worker, j.correlation_id, j.last_error
        -- Each lane is looked up once, not once for each of its jobs.
        from (select d.*, l.key
                from unnest(p_done.lanes, p_done.first_seqs, p_done.last_seqs) as d (lane, first, last),
                     lateral (select l.key from tallyman.lanes l where l.id = d.lane offset 0) l offset 0) d,
             lateral (select j.* from tallyman.jobs j
                       where j.lane = d.lane and j.pos between d.first and d.last offset 0) j
       where p_done.keep_ms > 0
       -- Lanes mix the ids. In their order fewer pages of history's index are touched again and again.
       order by j.id
    )
    delete from tallyman.jobs j
     where j.ctid = any (array(
             select j.ctid
               from unnest(p_done.lanes, p_done.first_seqs, p_done.last_seqs) as d (lane, first, last),
                    lateral (select j.ctid from tallyman.jobs j
                              where j.lane = d.lane and j.pos between d.first and d.last offset 0) j))
       and j.pos <= v_last;
    get diagnostics v_count = row_count;
  end if;
  return v_count;
end $$;

-- Completes those of the jobs that are there, and ends their dedupe keys; returns the positions of those that are not.
create or replace function tallyman.complete_exactly(p_done tallyman.done_jobs) returns bigint[]
language plpgsql as $$
declare
  v_done bigint[];
begin
  perform tallyman.lock_keys(p_done);
  v_done := tallyman.end_free(p_done) || tallyman.end_in_lanes(p_done);
  return array(select unnest(p_done.positions || p_done.seqs) except select unnest(v_done));
end $$;

-- Locks the jobs that have keys, then the keys: jobs before keys, as cancel does, and several keys in sorted order, as
-- enqueue_full does.
create or replace function tallyman.lock_keys(p_done tallyman.done_jobs) returns void
language plpgsql as $$
begin
  perform 1 from tallyman.jobs j
   where j.stream = any (p_done.streams) and j.lane is null and j.pos = any (p_done.positions)
     and j.dedupe_key is not null
     for update;
  perform 1 from unnest(p_done.lanes, p_done.first_seqs, p_done.last_seqs) as d (lane, first, last),
    lateral (select 1 from tallyman.jobs j
              where j.lane = d.lane and j.pos between d.first and d.last and j.dedupe_key is not null
                for update) j;
  perform 1
     from (select j.tenant_id, j.kind, j.dedupe_key from tallyman.jobs j
            where j.stream = any (p_done.streams) and j.lane is null and j.pos = any (p_done.positions)
              and j.dedupe_key is not null
           union all
           select j.tenant_id, j.kind, j.dedupe_key
             from unnest(p_done.lanes, p_done.first_seqs, p_done.last_seqs) as d (lane, first, last),
                  lateral (select j.tenant_id, j.kind, j.dedupe_key from tallyman.jobs j
                            where j.lane = d.lane and j.pos between d.first and d.last and j.dedupe_key is not null
                           offset 0) j
            order by 1, 2, 3 offset 0) j,
          lateral (select 1 from tallyman.dedupe_keys k
                    where k.tenant_id = j.tenant_id and k.kind = j.kind and k.key = j.dedupe_key for update) k;
end $$;

-- Ends the free jobs that are there, and their keys; returns their positions.
create or replace function tallyman.end_free(p_done tallyman.done_jobs) returns bigint[]
language plpgsql as $$
declare
  v_done bigint[];
begin
  if cardinality(p_done.positions) > 0 then
    with done as (
      delete from tallyman.jobs j
       where j.stream = any (p_done.streams) and j.lane is null and j.pos = any (p_done.positions)
      returning j.*
    ), kept as (
      insert into tallyman.history
        (id, finished_at, status, stream, attempts, max_attempts, created_at, scheduled_at, kind,
         tenant_id, payload, worker, correlation_id, dedupe_key, last_error)
      select d.id, now(), 'SUCCEEDED', d.stream, d.attempts + 1, d.max_attempts, d.created_at, d.scheduled_at,
             d.kind, d.tenant_id, d.payload, p_done.worker, d.correlation_id, d.dedupe_key, d.last_error
        from done d where p_done.keep_ms > 0
    ), keys as (
      update tallyman.dedupe_keys k
         set expires_at = now() + coalesce(k.keep, p_done.keep_ms * interval '1 millisecond')
       where k.ctid = any (array(
               select k.ctid
                 from done d,
                      lateral (select k.ctid from tallyman.dedupe_keys k
                                where k.tenant_id = d.tenant_id and k.kind = d.kind and k.key = d.dedupe_key offset 0) k
                where d.dedupe_key is not null))
    )
    select array_agg(d.pos) into v_done from done d;
  end if;
  return v_done;
end $$;

-- The same for jobs in lanes.
create or replace function tallyman.end_in_lanes(p_done tallyman.done_jobs) returns bigint[]
language plpgsql as $$
declare
  v_done bigint[];
  v_last bigint := (select max(s) from unnest(p_done.last_seqs) s);
begin
  if cardinality(p_done.seqs) > 0 then
    with done as (
      delete from tallyman.jobs j
       where j.ctid = any (array(
               select j.ctid
                 from unnest(p_done.lanes, p_done.first_seqs, p_done.last_seqs) as d (lane, first, last),
                      lateral (select j.ctid from tallyman.jobs j
                                where j.lane = d.lane and j.pos between d.first and d.last offset 0) j))
         and j.pos <= v_last
      returning j.*
    ), kept as (
      insert into tallyman.history
        (id, finished_at, status, stream, attempts, max_attempts, created_at, scheduled_at, kind,
         tenant_id, payload, lane, seq, worker, correlation_id, dedupe_key, last_error)
      select d.id, now(), case when d.pos = any (p_done.superseded) then 'SUPERSEDED' else 'SUCCEEDED' end, d.stream,
             d.attempts + 1, d.max_attempts, d.created_at, d.scheduled_at, d.kind, d.tenant_id, d.payload, l.key, d.pos,
             p_done.worker, d.correlation_id, d.dedupe_key, d.last_error
        from done d, lateral (select l.key from tallyman.lanes l where l.id = d.lane offset 0) l
       where p_done.keep_ms > 0
    ), keys as (
      update tallyman.dedupe_keys k
         set expires_at = now() + coalesce(k.keep, p_done.keep_ms * interval '1 millisecond')
       where k.ctid = any (array(
               select k.ctid
                 from done d,
                      lateral (select k.ctid from tallyman.dedupe_keys k
                                where k.tenant_id = d.tenant_id and k.kind = d.kind and k.key = d.dedupe_key offset 0) k
                where d.dedupe_key is not null))
    )
    select array_agg(d.pos) into v_done from done d;
  end if;
  return v_done;
end $$;
