-- Enqueue. The caller passes the distinct (queue, priority) pairs once; a job names its pair by index (1-based).
--
-- A transaction takes its xid before it draws a position. The floor of a stream rests on that: see claim.

create or replace function tallyman.stream_of(p_queue text, p_priority smallint, p_variant text default '') returns integer
language plpgsql as $$
declare
  v_id integer;
begin
  select s.id into v_id from tallyman.streams s
   where s.queue = p_queue and s.priority = p_priority and s.variant = p_variant;
  while v_id is null loop
    insert into tallyman.queues (name) values (p_queue) on conflict do nothing;
    insert into tallyman.streams (queue, priority, variant) values (p_queue, p_priority, p_variant)
    on conflict do nothing;
    select s.id into v_id from tallyman.streams s
     where s.queue = p_queue and s.priority = p_priority and s.variant = p_variant;
  end loop;
  return v_id;
end $$;

create or replace function tallyman.streams_of(p_queues text[], p_priorities smallint[]) returns integer[]
language plpgsql as $$
declare
  v_ids integer[] := array(
    select s.id from unnest(p_queues, p_priorities) with ordinality as q (queue, priority, n)
      left join tallyman.streams s on s.queue = q.queue and s.priority = q.priority and s.variant = ''
     order by q.n);
begin
  -- Almost always all of them are there. They are made in sorted order: otherwise two transactions that make the same ones
  -- would deadlock.
  if array_position(v_ids, null) is not null then
    perform tallyman.stream_of(q.queue, q.priority)
       from (select q.queue, q.priority from unnest(p_queues, p_priorities) as q (queue, priority)
              order by q.queue, q.priority) q;
    v_ids := array(
      select s.id from unnest(p_queues, p_priorities) with ordinality as q (queue, priority, n)
        join tallyman.streams s on s.queue = q.queue and s.priority = q.priority and s.variant = ''
       order by q.n);
  end if;
  return v_ids;
end $$;

create or replace function tallyman.hint(p_queues text[]) returns void
language sql as $$
  select pg_notify('tallyman_jobs', q) from (select distinct unnest(p_queues) as q) d
$$;

-- Jobs that differ in nothing but their payload, and are due, without lane and without dedupe key. Returns the ids in the
-- order of the input. Shared columns are sent once: this costs a third less than enqueue_plain.
create or replace function tallyman.enqueue_alike(
  p_queue text, p_priority smallint, p_kind text, p_max_attempts smallint, p_tenant text, p_correlation text,
  p_trace text, p_payloads json, p_notify boolean
) returns bigint[]
language plpgsql as $$
declare
  -- Taken here, before a position is drawn; it is not read. As a statement of its own it costs more.
  v_xid constant xid8 not null := pg_current_xact_id();
  v_stream integer;
  v_ids bigint[];
begin
  select s.id into v_stream from tallyman.streams s
   where s.queue = p_queue and s.priority = p_priority and s.variant = '';
  if v_stream is null then
    v_stream := tallyman.stream_of(p_queue, p_priority);
  end if;
  with added as (
    insert into tallyman.jobs (id, pos, stream, max_attempts, kind, tenant_id, payload, correlation_id, trace)
    select i.n, i.n, v_stream, p_max_attempts, p_kind, p_tenant, i.payload, p_correlation, p_trace
      from (select nextval('tallyman.positions') as n, e.payload from json_array_elements(p_payloads) as e (payload)) i
    returning id
  )
  select array_agg(id) into v_ids from added;
  if p_notify then
    perform tallyman.hint(array[p_queue]);
  end if;
  return v_ids;
end $$;

-- Jobs without lane and without dedupe key: one statement. Returns the ids in the order of the input.
create or replace function tallyman.enqueue_plain(
  p_queues text[], p_priorities smallint[], p_jobs json, p_notify boolean
) returns bigint[]
language plpgsql as $$
declare
  v_streams integer[] := tallyman.streams_of(p_queues, p_priorities);
  v_ids bigint[];
begin
  perform pg_current_xact_id();
  with input as (
    select nextval('tallyman.positions') as n, r.*
      from json_to_recordset(p_jobs)
        as r (s integer, k text, p json, m smallint, t text, d double precision, at timestamptz, c text, w text)
  ), added as (
    insert into tallyman.jobs
      (id, pos, stream, max_attempts, scheduled_at, kind, tenant_id, payload, correlation_id, trace)
    select i.n, case when due.at is null or due.at <= now() then i.n end, v_streams[i.s], i.m,
           coalesce(due.at, now()), i.k, i.t, coalesce(i.p, 'null'), i.c, i.w
      from input i,
           lateral (select coalesce(i.at, now() + i.d * interval '1 millisecond') as at) due
    returning id
  )
  select array_agg(id order by id) into v_ids from added;
  if p_notify then
    perform tallyman.hint(p_queues);
  end if;
  return v_ids;
end $$;

-- Jobs with lanes or dedupe keys. `existing` tells that the key was taken: `id` is the first job's then.
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
  v_streams integer[] := tallyman.streams_of(p_queues, p_priorities);
  v_rows tallyman.new_job[];
  v_won_ords integer[];
  v_won_ids bigint[];
  v_busy integer[];
begin
  perform pg_current_xact_id();
  if p_wait_ms is not null then
    perform set_config('lock_timeout', case p_wait_ms when 0 then '50ms' else p_wait_ms || 'ms' end, true);
  end if;
  select array_agg(row(n, s, k, p, m, t, d, at, c, x, xk, l, b, o, w)::tallyman.new_job order by n)
    into v_rows
    from (select row_number() over () as n, r.*
            from json_to_recordset(p_jobs)
              as r (s integer, k text, p json, m smallint, t text, d double precision, at timestamptz, c text,
                    x text, xk interval, l text, b text, o boolean, w text)) numbered;

  -- 1. Keys, in sorted order so that two writers cannot deadlock. The transaction that inserts a key owns the job; a key that is
  --    taken stays locked (DO UPDATE locks also where its condition is false), so it is still there in step 4.
  with candidate as (
    select nextval('tallyman.positions') as id, c.*
      from (select distinct on (r.t, r.k, r.x) r.ord, r.t, r.k, r.x, r.xk
              from unnest(v_rows) r where r.x is not null order by r.t, r.k, r.x, r.ord) c
  ), won as (
    insert into tallyman.dedupe_keys as e (tenant_id, kind, key, job_id, keep)
    select c.t, c.k, c.x, c.id, c.xk from candidate c order by c.t, c.k, c.x
    on conflict (tenant_id, kind, key) do update
       set job_id = excluded.job_id, keep = excluded.keep, expires_at = null
     where e.expires_at <= clock_timestamp()
    returning job_id
  )
  select array_agg(c.ord), array_agg(c.id) into v_won_ords, v_won_ids
    from won w join candidate c on c.id = w.job_id;

  -- 2. Gates: locked before any seq is drawn, so within a lane seq order is commit order.
  v_busy := tallyman.lock_gates(p_queues, v_streams, v_rows, v_won_ords, coalesce(p_wait_ms = 0, false));
  if v_busy is not null then
    delete from tallyman.dedupe_keys e
     using unnest(v_rows) r, unnest(v_won_ords, v_won_ids) as w (ord, id)
     where w.ord = r.ord and r.ord = any (v_busy)
       and e.tenant_id = r.t and e.kind = r.k and e.key = r.x and e.job_id = w.id;
    -- A job whose key a busy one had won is as busy as that.
    v_rows := array(select r from unnest(v_rows) r
                     where not r.ord = any (v_busy)
                       and not exists (select 1 from unnest(v_rows) b
                                        where b.ord = any (v_busy) and b.x = r.x and b.t = r.t and b.k = r.k)
                     order by r.ord);
  end if;

  -- 3. The jobs, and every lane of theirs that was at rest is put on its stream.
  with input as (
    select nextval('tallyman.positions') as n, r.*
      from (select r.* from unnest(v_rows) r where r.x is null or r.ord = any (v_won_ords) order by r.ord) r
  ), added as (
    insert into tallyman.jobs
      (id, pos, lane, stream, max_attempts, latest_only, scheduled_at, kind, tenant_id, payload, correlation_id,
       dedupe_key, trace)
    select coalesce(w.id, i.n), case when i.l is not null or due.at is null or due.at <= now() then i.n end,
           l.id, v_streams[i.s], i.m, coalesce(i.o, false), coalesce(due.at, now()), i.k, i.t, coalesce(i.p, 'null'),
           i.c, i.x, i.w
      from input i
      left join unnest(v_won_ords, v_won_ids) as w (ord, id) on w.ord = i.ord
      left join tallyman.lanes l on l.tenant_id = i.t and l.queue = p_queues[i.s] and l.key = i.l,
           lateral (select coalesce(i.at, now() + i.d * interval '1 millisecond') as at) due
     order by i.n
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
  ), numbered as (
    select i.ord, coalesce(w.id, i.n) as id from input i
      left join unnest(v_won_ords, v_won_ids) as w (ord, id) on w.ord = i.ord
  )
  select array_agg(n.ord), array_agg(n.id) into v_won_ords, v_won_ids from numbered n;

  if p_notify then
    perform tallyman.hint(p_queues);
  end if;

  -- 4. An answer for each, in the order of the input.
  return query
  select coalesce(w.id, e.job_id), w.id is null and e.job_id is not null
    from generate_series(1, json_array_length(p_jobs)) as o (ord)
    left join unnest(v_rows) r on r.ord = o.ord
    left join unnest(v_won_ords, v_won_ids) as w (ord, id) on w.ord = r.ord
    left join tallyman.dedupe_keys e on w.id is null and e.tenant_id = r.t and e.kind = r.k and e.key = r.x
   order by o.ord;
end $$;

-- Makes the lanes that do not exist and locks the gates of all, in the order of their ids. Returns the jobs (by `ord`)
-- whose gate another transaction has; null for none. Without p_skip_busy it waits, and there are none.
--
-- A transaction that does not read what others have committed meanwhile (REPEATABLE READ) could find a lane at work
-- that has come to rest since, and would not wake it. There the lane's own row is locked as well: either it is as it
-- was, and stays so, or PostgreSQL refuses with 40001 and the caller repeats its transaction.
create or replace function tallyman.lock_gates(
  p_queues text[], p_streams integer[], p_rows tallyman.new_job[], p_won_ords integer[], p_skip_busy boolean
) returns integer[]
language plpgsql
set enable_seqscan = off set jit = off
as $$
declare
  v_locked bigint[];
  v_wanted bigint := (select count(distinct (r.t, p_queues[r.s], r.l)) from unnest(p_rows) r
                       where r.l is not null and (r.x is null or r.ord = any (p_won_ords)));
begin
  if v_wanted = 0 then
    return null;
  end if;
  -- The loop is for a lane that retention removed between the two statements.
  loop
    with made as (
      insert into tallyman.lanes (tenant_id, queue, key, stream)
      select distinct on (r.t, p_queues[r.s], r.l) r.t, p_queues[r.s], r.l, p_streams[r.s]
        from unnest(p_rows) r
       where r.l is not null and (r.x is null or r.ord = any (p_won_ords))
         and not exists (select 1 from tallyman.lanes e
                          where e.tenant_id = r.t and e.queue = p_queues[r.s] and e.key = r.l)
       order by r.t, p_queues[r.s], r.l
      on conflict do nothing
      returning id, tenant_id
    )
    insert into tallyman.lane_gates (lane, tenant_id) select m.id, m.tenant_id from made m;

    if p_skip_busy then
      v_locked := array(
        select g.lane
          from (select distinct r.t, p_queues[r.s] as q, r.l
                  from unnest(p_rows) r where r.l is not null and (r.x is null or r.ord = any (p_won_ords))) w
          join tallyman.lanes e on e.tenant_id = w.t and e.queue = w.q and e.key = w.l
          join tallyman.lane_gates g on g.lane = e.id
         order by g.lane for update of g skip locked);
    else
      v_locked := array(
        select g.lane
          from (select distinct r.t, p_queues[r.s] as q, r.l
                  from unnest(p_rows) r where r.l is not null and (r.x is null or r.ord = any (p_won_ords))) w
          join tallyman.lanes e on e.tenant_id = w.t and e.queue = w.q and e.key = w.l
          join tallyman.lane_gates g on g.lane = e.id
         order by g.lane for update of g);
    end if;
    exit when p_skip_busy or cardinality(v_locked) = v_wanted;
  end loop;

  if current_setting('transaction_isolation') <> 'read committed' then
    perform 1 from tallyman.lanes l where l.id = any (v_locked) order by l.id for update;
  end if;

  update tallyman.lane_gates g set policy = r.b
    from (select distinct on (r.t, p_queues[r.s], r.l) r.t, p_queues[r.s] as q, r.l, r.b
            from unnest(p_rows) r where r.l is not null order by r.t, p_queues[r.s], r.l, r.ord desc) r
    join tallyman.lanes l on l.tenant_id = r.t and l.queue = r.q and l.key = r.l
   where g.lane = l.id and g.lane = any (v_locked) and g.policy <> r.b;

  if cardinality(v_locked) = v_wanted then
    return null;
  end if;
  return array(
    select r.ord from unnest(p_rows) r
     where r.l is not null and (r.x is null or r.ord = any (p_won_ords))
       and not exists (select 1 from tallyman.lanes e
                        where e.tenant_id = r.t and e.queue = p_queues[r.s] and e.key = r.l and e.id = any (v_locked)));
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
