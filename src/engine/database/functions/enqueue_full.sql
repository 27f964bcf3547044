-- Enqueue of jobs with lanes or dedupe keys, step by step: read the input, take the keys, lock the gates of the lanes, write
-- the jobs. Each step passes the jobs on to the next one as tallyman.new_job.
--
-- Locks are taken in the order keys, gates, lanes, each in sorted order, so that two writers cannot deadlock.

-- Answers one row for each job, in the order of the input. `existing` tells that the key was taken: `id` is the first
-- job's then.
--
-- p_wait_ms says how long to wait for locks; then it fails with 55P03, and nothing is written. Null: as long as it takes.
-- With 0 nothing waits for a lane that another transaction writes into: jobs of such a lane are left out, and their `id` is null.
-- Other locks (a key or a new lane in another open transaction) are waited for briefly. So a batch of many callers
-- never waits for one of them.
create or replace function tallyman.enqueue_full(
  p_queues text[], p_priorities smallint[], p_jobs json, p_notify boolean, p_wait_ms integer default null
) returns table (id bigint, existing boolean)
language plpgsql
set enable_seqscan = off set jit = off
as $$
#variable_conflict use_column
declare
  v_jobs tallyman.new_job[];
  v_written record;
begin
  perform pg_current_xact_id();
  if p_wait_ms is not null then
    perform set_config('lock_timeout', case p_wait_ms when 0 then '50ms' else p_wait_ms || 'ms' end, true);
  end if;
  v_jobs := tallyman.read_new_jobs(p_queues, tallyman.streams_of(p_queues, p_priorities), p_jobs);
  v_jobs := tallyman.take_keys(v_jobs);
  v_jobs := tallyman.lock_gates(v_jobs, coalesce(p_wait_ms = 0, false));
  v_written := tallyman.write_jobs(v_jobs);
  if p_notify then
    perform tallyman.hint(p_queues);
  end if;
  return query
  select coalesce(w.id, j.id), w.id is null and j.id is not null
    from generate_series(1, json_array_length(p_jobs)) as o (n)
    left join unnest(v_jobs) j on j.n = o.n
    left join unnest(v_written.ns, v_written.ids) as w (n, id) on w.n = o.n
   order by o.n;
end $$;

-- The input, with streams instead of indexes and points in time instead of delays. Its names are short, because they are sent
-- with every job; src/engine/jobs/new-job.ts writes them.
create or replace function tallyman.read_new_jobs(p_queues text[], p_streams integer[], p_jobs json)
returns tallyman.new_job[]
language plpgsql as $$
begin
  return array(
    select row(row_number() over (), null, false, p_queues[r.s], p_streams[r.s], r.k, coalesce(r.p, 'null'), r.m, r.t,
               coalesce(r.at, now() + r.d * interval '1 millisecond'), r.c, r.x, r.xk, r.l, r.b, coalesce(r.o, false),
               r.w)::tallyman.new_job
      from json_to_recordset(p_jobs) as r (
        s integer,         -- stream: index into p_queues, from 1
        k text,            -- kind
        p json,            -- payload
        m smallint,        -- max_attempts
        t text,            -- tenant_id
        d double precision, at timestamptz,  -- delay in milliseconds, or the time itself; neither: now
        c text,            -- correlation_id
        x text, xk interval,                 -- dedupe_key, dedupe_keep
        l text, b text,    -- lane, lane_policy
        o boolean,         -- latest_only
        w text));          -- trace
end $$;

-- Takes the dedupe keys. The transaction that inserts a key owns the job. A key that is taken stays locked until the caller's
-- transaction ends (DO UPDATE locks also where its condition is false), so the job that owns it does not change.
-- Of two jobs of one call with the same key the first gets it.
create or replace function tallyman.take_keys(p_jobs tallyman.new_job[]) returns tallyman.new_job[]
language plpgsql as $$
declare
  v_won integer[];
begin
  if not exists (select 1 from unnest(p_jobs) j where j.dedupe_key is not null) then
    return p_jobs;
  end if;
  with candidate as (
    select nextval('tallyman.positions') as id, c.*
      from (select distinct on (j.tenant_id, j.kind, j.dedupe_key)
                   j.n, j.tenant_id, j.kind, j.dedupe_key, j.dedupe_keep
              from unnest(p_jobs) j where j.dedupe_key is not null
             order by j.tenant_id, j.kind, j.dedupe_key, j.n) c
  ), won as (
    insert into tallyman.dedupe_keys as e (tenant_id, kind, key, job_id, keep)
    select c.tenant_id, c.kind, c.dedupe_key, c.id, c.dedupe_keep from candidate c
     order by c.tenant_id, c.kind, c.dedupe_key
    on conflict (tenant_id, kind, key) do update
       set job_id = excluded.job_id, keep = excluded.keep, expires_at = null
     where e.expires_at <= clock_timestamp()
    returning job_id
  )
  select array_agg(c.n) into v_won from won w join candidate c on c.id = w.job_id;
  -- A statement of its own: it sees the keys that others have committed while this one waited for them.
  return array(
    select row(j.n, k.job_id, j.dedupe_key is not null and w.n is null, j.queue, j.stream, j.kind, j.payload,
               j.max_attempts, j.tenant_id, j.scheduled_at, j.correlation_id, j.dedupe_key, j.dedupe_keep, j.lane,
               j.lane_policy, j.latest_only, j.trace)::tallyman.new_job
      from unnest(p_jobs) j
      left join unnest(v_won) as w (n) on w.n = j.n
      left join tallyman.dedupe_keys k
        on k.tenant_id = j.tenant_id and k.kind = j.kind and k.key = j.dedupe_key
     order by j.n);
end $$;

-- Locks the gates of the jobs' lanes, before any seq is drawn: so within a lane seq order is commit order. With p_skip_busy it
-- waits for no other transaction that has a gate, and returns the jobs without those of such lanes.
--
-- A transaction that does not read what others have committed meanwhile (REPEATABLE READ) could find a lane at work
-- that has come to rest since, and would not wake it. There the lane's own row is locked as well: either it is as it
-- was, and stays so, or PostgreSQL refuses with 40001 and the caller repeats its transaction.
create or replace function tallyman.lock_gates(p_jobs tallyman.new_job[], p_skip_busy boolean)
returns tallyman.new_job[]
language plpgsql as $$
declare
  v_wanted bigint := (select count(distinct (j.tenant_id, j.queue, j.lane)) from unnest(p_jobs) j
                       where j.lane is not null and not j.is_existing);
  v_locked bigint[];
begin
  if v_wanted = 0 then
    return p_jobs;
  end if;
  -- The loop is for a lane that retention removed between the two statements.
  loop
    perform tallyman.make_lanes(p_jobs);
    v_locked := case when p_skip_busy then tallyman.lock_free_gates(p_jobs) else tallyman.lock_all_gates(p_jobs) end;
    exit when p_skip_busy or cardinality(v_locked) = v_wanted;
  end loop;
  if current_setting('transaction_isolation') <> 'read committed' then
    perform 1 from tallyman.lanes l where l.id = any (v_locked) order by l.id for update;
  end if;

  update tallyman.lane_gates g set policy = r.lane_policy
    from (select distinct on (j.tenant_id, j.queue, j.lane) j.tenant_id, j.queue, j.lane, j.lane_policy
            from unnest(p_jobs) j where j.lane is not null order by j.tenant_id, j.queue, j.lane, j.n desc) r
    join tallyman.lanes l on l.tenant_id = r.tenant_id and l.queue = r.queue and l.key = r.lane
   where g.lane = l.id and g.lane = any (v_locked) and g.policy <> r.lane_policy;

  if cardinality(v_locked) < v_wanted then
    return tallyman.without_busy(p_jobs, v_locked);
  end if;
  return p_jobs;
end $$;

-- Makes the lanes that do not exist, each with its gate.
create or replace function tallyman.make_lanes(p_jobs tallyman.new_job[]) returns void
language plpgsql as $$
begin
  with made as (
    insert into tallyman.lanes (tenant_id, queue, key, stream)
    select distinct on (j.tenant_id, j.queue, j.lane) j.tenant_id, j.queue, j.lane, j.stream
      from unnest(p_jobs) j
     where j.lane is not null and not j.is_existing
       and not exists (select 1 from tallyman.lanes e
                        where e.tenant_id = j.tenant_id and e.queue = j.queue and e.key = j.lane)
     order by j.tenant_id, j.queue, j.lane
    on conflict do nothing
    returning id, tenant_id
  )
  insert into tallyman.lane_gates (lane, tenant_id) select m.id, m.tenant_id from made m;
end $$;

-- Locks the gates of all lanes, by their ids, and returns the lanes.
create or replace function tallyman.lock_all_gates(p_jobs tallyman.new_job[]) returns bigint[]
language plpgsql as $$
begin
  return array(
    select g.lane
      from (select distinct j.tenant_id, j.queue, j.lane
              from unnest(p_jobs) j where j.lane is not null and not j.is_existing) w
      join tallyman.lanes e on e.tenant_id = w.tenant_id and e.queue = w.queue and e.key = w.lane
      join tallyman.lane_gates g on g.lane = e.id
     order by g.lane for update of g);
end $$;

-- The same with those that no other transaction has.
create or replace function tallyman.lock_free_gates(p_jobs tallyman.new_job[]) returns bigint[]
language plpgsql as $$
begin
  return array(
    select g.lane
      from (select distinct j.tenant_id, j.queue, j.lane
              from unnest(p_jobs) j where j.lane is not null and not j.is_existing) w
      join tallyman.lanes e on e.tenant_id = w.tenant_id and e.queue = w.queue and e.key = w.lane
      join tallyman.lane_gates g on g.lane = e.id
     order by g.lane for update of g skip locked);
end $$;

-- The jobs without those whose lane is not among the locked ones, and without those that share the key of one of them.
-- Gives the keys of these back.
create or replace function tallyman.without_busy(p_jobs tallyman.new_job[], p_locked bigint[])
returns tallyman.new_job[]
language plpgsql as $$
declare
  v_busy integer[] := array(
    select j.n from unnest(p_jobs) j
     where j.lane is not null and not j.is_existing
       and not exists (select 1 from tallyman.lanes e
                        where e.tenant_id = j.tenant_id and e.queue = j.queue and e.key = j.lane and e.id = any (p_locked)));
  v_ids bigint[] := array(select j.id from unnest(p_jobs) j where j.n = any (v_busy) and j.id is not null);
begin
  delete from tallyman.dedupe_keys e using unnest(p_jobs) j
   where j.n = any (v_busy) and e.tenant_id = j.tenant_id and e.kind = j.kind and e.key = j.dedupe_key;
  return array(
    select j from unnest(p_jobs) j
     where not j.n = any (v_busy) and coalesce(not j.id = any (v_ids), true)
     order by j.n);
end $$;

-- Writes the jobs that do not exist, and puts every lane of theirs that was at rest on its stream. Returns the id of each, by
-- its place. A job without a key has its first position as its id.
create or replace function tallyman.write_jobs(p_jobs tallyman.new_job[], out ns integer[], out ids bigint[])
language plpgsql as $$
begin
  with input as (
    select nextval('tallyman.positions') as pos, j.*
      from (select j.* from unnest(p_jobs) j where not j.is_existing order by j.n) j
  ), added as (
    insert into tallyman.jobs
      (id, pos, lane, stream, max_attempts, latest_only, scheduled_at, kind, tenant_id, payload, correlation_id,
       dedupe_key, trace)
    select coalesce(i.id, i.pos),
           case when i.lane is not null or i.scheduled_at is null or i.scheduled_at <= now() then i.pos end,
           l.id, i.stream, i.max_attempts, i.latest_only, coalesce(i.scheduled_at, now()), i.kind, i.tenant_id, i.payload,
           i.correlation_id, i.dedupe_key, i.trace
      from input i
      left join tallyman.lanes l on l.tenant_id = i.tenant_id and l.queue = i.queue and l.key = i.lane
     order by i.pos
    returning id, pos, lane, stream, scheduled_at
  ), head as (
    select distinct on (a.lane) a.lane, a.stream, a.scheduled_at from added a where a.lane is not null
     order by a.lane, a.pos
  ), woken as (
    update tallyman.lanes l
       set pos = case when h.scheduled_at <= now() then nextval('tallyman.positions') end,
           due_at = case when h.scheduled_at > now() then h.scheduled_at end,
           stream = h.stream
      from head h
     where l.id = h.lane and l.pos is null and l.due_at is null and l.blocked_at is null
  )
  select array_agg(i.n), array_agg(coalesce(i.id, i.pos)) into ns, ids from input i;
end $$;
