-- The public interface: what others than the engine may call in SQL. Everything else in this schema, tables and views
-- above all, may change with any release; test/engine/border.test.ts holds our own apps to this list.
--
--   enqueue(kind, ...)               one job; answers its id
--   enqueue_many(jobs, ...)          many jobs in one statement; answers id and `existing` of each
--   try_enqueue_many(jobs, ...)      the same, but waits for no lane that another transaction writes into
--   enqueue_prepared(kinds, ...)     many jobs whose kinds the caller has read before; for programs that enqueue all day
--   register_kind(name, ...)         the defaults of a kind's jobs
--   prepare_kind(kind)               makes the queue of a kind, so that the first enqueue need not
--   is_public_kind(name)             may be enqueued from outside; null: no such kind
--   job_exists(id)                   the job has not ended
--   lock_job(id)                     the same, and it does not end before the caller's transaction does
--   due_at(id)                       from when on it may run; null: it has ended
--   hasten(ids)                      lets jobs that wait for their time run now
--   dead_letter_exists(id)           the job has used up its attempts, and may be redriven
--   dead_letters_of(tenant, kind)    with their payloads
--   tenant_counts(tenants)           how much is ready, running, dead, ...
--   has_jobs(tenant, number)         it has at least so many that have not ended
--   queue_names()                    every queue that there is
--   on_change(what, function)        calls a trigger function after a change; see hooks.sql
--   isolate(table)                   puts a table under row-level security
--   prepare_tenant_role()            makes the role that acts for one tenant in this database
--   tenant_role()                    its name
--   acts_for_tenant()                whether this statement runs under it
--
-- Settings: tallyman.tenant, tallyman.max_payload_bytes. All functions run with the rights of the caller: under the role
-- of tenants they see and write rows of its tenant only.

-- The kind's definition, which workers register when they start.
create or replace function tallyman.kind_of(p_kind text) returns tallyman.kinds
language plpgsql stable as $$
declare
  v_kind tallyman.kinds;
begin
  select k.* into v_kind from tallyman.kinds k where k.name = p_kind;
  if not found then
    raise exception 'unknown kind "%"', p_kind
      using errcode = 'TM001', hint = 'Start a worker that defines it once, or call tallyman.register_kind().';
  end if;
  return v_kind;
end $$;

-- Raises what is wrong with a job as SQL callers give it.
create or replace function tallyman.check_new_job(
  payload json, priority integer, lane text, delay interval, dedupe_key text, max_attempts integer, trace text
) returns void
language plpgsql stable as $$
declare
  v_limit integer := coalesce(nullif(current_setting('tallyman.max_payload_bytes', true), ''), '1048576')::integer;
begin
  if delay < interval '0' then
    raise exception 'delay must not be negative, got %', delay using errcode = 'TM002';
  elsif priority not between 0 and 3 then
    raise exception 'priority must be 0 (critical) to 3 (low), got %', priority using errcode = 'TM002';
  elsif max_attempts not between 1 and 1000 then
    raise exception 'max_attempts must be 1 to 1000, got %', max_attempts using errcode = 'TM002';
  elsif octet_length(lane) not between 1 and 256 then
    raise exception 'lane must be 1 to 256 bytes, got %', octet_length(lane) using errcode = 'TM002';
  elsif octet_length(dedupe_key) not between 1 and 512 then
    raise exception 'dedupe_key must be 1 to 512 bytes, got %', octet_length(dedupe_key) using errcode = 'TM002';
  elsif octet_length(trace) > 512 then
    raise exception 'trace must be at most 512 bytes, got %', octet_length(trace) using errcode = 'TM002';
  elsif payload is null then
    raise exception 'payload must not be null' using errcode = 'TM002';
  elsif octet_length(payload::text) > v_limit then
    raise exception 'payload of % bytes is over the limit of %', octet_length(payload::text), v_limit
      using errcode = 'TM003', hint = 'Store it elsewhere and pass a reference, or raise tallyman.max_payload_bytes.';
  end if;
end $$;

-- For other languages and for triggers: select tallyman.enqueue('greet', '{"name": "Ada"}').
-- What is left null comes from the kind's definition, which workers register when they start.
create or replace function tallyman.enqueue(
  kind text,
  payload json default '{}',
  queue text default null,
  priority integer default null,
  lane text default null,
  delay interval default null,
  scheduled_at timestamptz default null,
  dedupe_key text default null,
  tenant_id text default 'default',
  max_attempts integer default null,
  correlation_id text default null,
  latest_only boolean default null,
  trace text default null
) returns bigint
language plpgsql as $$
declare
  v_kind tallyman.kinds := tallyman.kind_of(kind);
  v_id bigint;
begin
  perform tallyman.check_new_job(payload, priority, lane, delay, dedupe_key, max_attempts, trace);
  if lane is null and dedupe_key is null and delay is null and scheduled_at is null then
    return (tallyman.enqueue_alike(
      coalesce(queue, v_kind.queue), coalesce(priority, v_kind.priority)::smallint, enqueue.kind,
      coalesce(max_attempts, v_kind.max_attempts)::smallint, tenant_id, correlation_id, trace,
      json_build_array(payload), true))[1];
  end if;
  select f.id into v_id
    from tallyman.enqueue_full(
      array[coalesce(queue, v_kind.queue)], array[coalesce(priority, v_kind.priority)::smallint],
      json_build_array(json_build_object(
        's', 1, 'k', enqueue.kind, 'p', payload, 'm', coalesce(max_attempts, v_kind.max_attempts), 't', tenant_id,
        'd', extract(epoch from delay) * 1000, 'at', scheduled_at, 'c', correlation_id, 'x', dedupe_key,
        'xk', v_kind.dedupe_keep, 'l', lane, 'b', v_kind.lane_policy,
        'o', coalesce(latest_only, v_kind.latest_only), 'w', trace)),
      true) f;
  return v_id;
end $$;

create or replace function tallyman.register_kind(
  name text, queue text default 'default', priority integer default 2, max_attempts integer default 5,
  lane_policy text default 'skip', latest_only boolean default false, dedupe_keep interval default null,
  is_public boolean default false
) returns void
language sql as $$
  insert into tallyman.kinds as k
    (name, queue, priority, max_attempts, lane_policy, latest_only, dedupe_keep, is_public)
  values ($1, $2, $3, $4, $5, $6, $7, $8)
  on conflict (name) do update
     set queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts,
         lane_policy = excluded.lane_policy, latest_only = excluded.latest_only, dedupe_keep = excluded.dedupe_keep,
         is_public = excluded.is_public
   where (k.queue, k.priority, k.max_attempts, k.lane_policy, k.latest_only, k.dedupe_keep, k.is_public)
         is distinct from
         (excluded.queue, excluded.priority, excluded.max_attempts, excluded.lane_policy, excluded.latest_only,
          excluded.dedupe_keep, excluded.is_public)
$$;

-- jobs: [{kind, payload, queue, priority, lane, delay, scheduled_at, dedupe_key, max_attempts, latest_only, trace, tenant_id},
-- ...], each as in enqueue(). What is left out comes from the kind, the tenant from the second argument. Answers one row for
-- each, `n` counting the input from 1.
create or replace function tallyman.enqueue_many(
  jobs json, tenant_id text default 'default', correlation_id text default null
) returns table (n integer, id bigint, existing boolean)
language sql as $$
  select m.n, m.id, m.existing from tallyman.enqueue_many_within(jobs, tenant_id, correlation_id, null) m
$$;

-- The same for callers that must not wait for others. `id` is null for each job of a lane that another open transaction
-- writes into: nothing was enqueued for it. Fails with 55P03, and writes nothing, if a lane is being made elsewhere.
create or replace function tallyman.try_enqueue_many(
  jobs json, tenant_id text default 'default', correlation_id text default null
) returns table (n integer, id bigint, existing boolean)
language sql as $$
  select m.n, m.id, m.existing from tallyman.enqueue_many_within(jobs, tenant_id, correlation_id, 0) m
$$;

-- wait_ms: as in enqueue_full.
create or replace function tallyman.enqueue_many_within(
  jobs json, tenant_id text, correlation_id text, wait_ms integer
) returns table (n integer, id bigint, existing boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_queues text[];
  v_priorities smallint[];
  v_jobs json;
begin
  perform tallyman.kind_of(d.kind) from (select distinct j.kind from json_to_recordset(jobs) as j (kind text)) d;
  perform tallyman.check_new_job(coalesce(j.payload, '{}'), j.priority, j.lane, j.delay, j.dedupe_key, j.max_attempts, j.trace)
     from json_to_recordset(jobs)
       as j (payload json, priority integer, lane text, delay interval, dedupe_key text, max_attempts integer, trace text);
  with job as materialized (
    select j.*, k.lane_policy, k.dedupe_keep, coalesce(j.own_queue, k.queue) as queue,
           coalesce(j.own_priority, k.priority)::smallint as priority,
           coalesce(j.own_max_attempts, k.max_attempts) as max_attempts,
           coalesce(j.own_latest_only, k.latest_only) as latest_only
      from rows from (json_to_recordset(jobs) as (
             kind text, payload json, queue text, priority integer, lane text, delay interval, scheduled_at timestamptz,
             dedupe_key text, max_attempts integer, latest_only boolean, trace text, tenant_id text)) with ordinality
        as j (kind, payload, own_queue, own_priority, lane, delay, scheduled_at, dedupe_key, own_max_attempts,
              own_latest_only, trace, own_tenant, n)
      join tallyman.kinds k on k.name = j.kind
  ), stream as materialized (
    select row_number() over () as s, d.queue, d.priority from (select distinct j.queue, j.priority from job j) d
  )
  select (select array_agg(s.queue order by s.s) from stream s), (select array_agg(s.priority order by s.s) from stream s),
         (select json_agg(json_build_object(
                   's', s.s, 'k', j.kind, 'p', coalesce(j.payload, '{}'), 'm', j.max_attempts,
                   't', coalesce(j.own_tenant, enqueue_many_within.tenant_id),
                   'd', extract(epoch from j.delay) * 1000, 'at', j.scheduled_at, 'c', enqueue_many_within.correlation_id,
                   'x', j.dedupe_key, 'xk', j.dedupe_keep, 'l', j.lane, 'b', j.lane_policy, 'o', j.latest_only,
                   'w', j.trace) order by j.n)
            from job j join stream s on s.queue = j.queue and s.priority = j.priority)
    into v_queues, v_priorities, v_jobs;
  if v_jobs is null then
    return;
  end if;
  -- Free jobs take the short way: half the time.
  if not exists (select 1 from json_to_recordset(v_jobs) as j (x text, l text) where j.x is not null or j.l is not null) then
    return query
    select p.n::integer, p.id, false
      from unnest(tallyman.enqueue_plain(v_queues, v_priorities, v_jobs, true)) with ordinality as p (id, n);
    return;
  end if;
  return query
  select f.n::integer, f.id, f.existing
    from tallyman.enqueue_full(v_queues, v_priorities, v_jobs, true, wait_ms) with ordinality as f (id, existing, n);
end $$;

-- Jobs as src/engine/jobs/new-job.ts prepares them: checked, with what they take from their kinds filled in, in the order
-- and with the stream numbers of enqueue_plain and enqueue_full. `kinds` are the rows that the caller took it from.
-- Answers no row, and writes nothing, if one of them has changed since.
--
-- `plain`: without lanes and dedupe keys. With wait_ms 0 an id is null where the lane is busy; see enqueue_full. It sends no
-- hint: the caller does that after its commit.
create or replace function tallyman.enqueue_prepared(
  kinds json, queues text[], priorities smallint[], jobs json, plain boolean, wait_ms integer
) returns table (ids bigint[], existing boolean[])
language plpgsql as $$
#variable_conflict use_column
declare
  v_ids bigint[];
begin
  if exists (select 1 from json_array_elements(enqueue_prepared.kinds) as e (kind)
               left join tallyman.kinds k on k.name = e.kind ->> 'name'
              where to_jsonb(k) is distinct from e.kind::jsonb) then
    return;
  end if;
  if plain then
    v_ids := tallyman.enqueue_plain(queues, priorities, jobs, false);
    return query select v_ids, array_fill(false, array[cardinality(v_ids)]);
  else
    return query
    select array_agg(f.id order by f.n), array_agg(f.existing order by f.n)
      from tallyman.enqueue_full(queues, priorities, jobs, false, wait_ms) with ordinality as f (id, existing, n);
  end if;
end $$;

-- For migrations. If the first enqueue created the queue, others would wait until that one commits.
create or replace function tallyman.prepare_kind(kind text) returns void
language plpgsql as $$
declare
  v_kind tallyman.kinds := tallyman.kind_of(kind);
begin
  perform tallyman.stream_of(v_kind.queue, v_kind.priority);
end $$;

create or replace function tallyman.is_public_kind(name text) returns boolean
language sql stable as $$
  select k.is_public from tallyman.kinds k where k.name = is_public_kind.name
$$;

-- In plpgsql: its plan is kept, and a caller may ask for each of many rows.
create or replace function tallyman.job_exists(id bigint) returns boolean
language plpgsql stable as $$
begin
  return exists (select 1 from tallyman.jobs j where j.id = job_exists.id);
end $$;

create or replace function tallyman.dead_letter_exists(id bigint) returns boolean
language plpgsql stable as $$
begin
  return exists (select 1 from tallyman.dead_letters d where d.id = dead_letter_exists.id);
end $$;

create or replace function tallyman.lock_job(id bigint) returns boolean
language plpgsql as $$
begin
  perform 1 from tallyman.jobs j where j.id = lock_job.id for key share;
  return found;
end $$;

create or replace function tallyman.dead_letters_of(tenant_id text, kind text) returns table (id bigint, payload json)
language sql stable as $$
  select d.id, d.payload from tallyman.dead_letters d
   where d.tenant_id = dead_letters_of.tenant_id and d.kind = dead_letters_of.kind
$$;

create or replace function tallyman.tenant_counts(tenants text[])
returns table (tenant_id text, ready integer, waiting integer, running integer, dead_letters integer,
               blocked_lanes integer, finished_last_minute integer)
language sql stable as $$
  select t.tenant, j.ready, j.waiting, j.running, d.dead_letters, b.blocked_lanes, f.finished_last_minute
    from unnest(tenants) as t (tenant),
         lateral (select count(*) filter (where l.status = 'QUEUED' and l.scheduled_at <= now())::integer as ready,
                         count(*) filter (where l.status = 'QUEUED' and l.scheduled_at > now())::integer as waiting,
                         count(*) filter (where l.status = 'RUNNING')::integer as running
                    from tallyman.live_jobs l where l.tenant_id = t.tenant) j,
         lateral (select count(*)::integer as dead_letters from tallyman.dead_letters d where d.tenant_id = t.tenant) d,
         lateral (select count(*)::integer as blocked_lanes from tallyman.lanes l
                   where l.tenant_id = t.tenant and l.blocked_at is not null) b,
         lateral (select count(*)::integer as finished_last_minute from tallyman.history h
                   where h.tenant_id = t.tenant and h.finished_at > now() - interval '1 minute') f
$$;

-- Looks at all jobs: for limits that are checked now and then.
create or replace function tallyman.has_jobs(tenant text, number bigint) returns boolean
language sql stable as $$
  select count(*) >= number from (select from tallyman.jobs j where j.tenant_id = tenant limit number) j
$$;

create or replace function tallyman.queue_names() returns setof text
language sql stable as $$
  select q.name from tallyman.queues q
$$;
