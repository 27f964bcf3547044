-- Enqueue. The caller passes the distinct (queue, priority) pairs once; a job names its pair by index (1-based).
--
-- A transaction takes its xid before it draws a position. The floor of a stream rests on that: see claim.

create function tallyman.stream_of(p_queue text, p_priority smallint, p_variant text default '') returns integer
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

create function tallyman.streams_of(p_queues text[], p_priorities smallint[]) returns integer[]
language plpgsql as $$
declare
  v_ids integer[] := array(
    select s.id from unnest(p_queues, p_priorities) with ordinality as q (queue, priority, n)
      left join tallyman.streams s on s.queue = q.queue and s.priority = q.priority and s.variant = ''
     order by q.n);
begin
  -- Almost always all of them are there.
  if array_position(v_ids, null) is not null then
    select array_agg(tallyman.stream_of(q.queue, q.priority) order by q.n) into v_ids
      from unnest(p_queues, p_priorities) with ordinality as q (queue, priority, n);
  end if;
  return v_ids;
end $$;

create function tallyman.hint(p_queues text[]) returns void
language sql as $$
  select pg_notify('tallyman_jobs', q) from (select distinct unnest(p_queues) as q) d
$$;

-- Jobs that differ in nothing but their payload, and are due, without lane and without dedupe key. Answers the ids in the
-- order of the input. What is the same for all is said once: a third less than enqueue_plain costs.
create function tallyman.enqueue_alike(
  p_queue text, p_priority smallint, p_kind text, p_max_attempts smallint, p_tenant text, p_correlation text,
  p_trace text, p_payloads json, p_notify boolean
) returns bigint[]
language plpgsql as $$
declare
  -- Taken here, before a position is drawn; nobody reads it. As a statement of its own it costs more.
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

-- Jobs without lane and without dedupe key: one statement. Answers the ids in the order of the input.
create function tallyman.enqueue_plain(
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

create type tallyman.new_job as (
  ord integer, s integer, k text, p json, m smallint, t text, d double precision, at timestamptz, c text,
  x text, xk interval, l text, b text, o boolean, w text
);

-- Jobs with lanes or dedupe keys. `existing` tells that the key was taken: `id` is the first job's then.
create function tallyman.enqueue_full(
  p_queues text[], p_priorities smallint[], p_jobs json, p_notify boolean
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
  v_lanes bigint[];
  v_wanted bigint;
begin
  perform pg_current_xact_id();
  select array_agg(row(n, s, k, p, m, t, d, at, c, x, xk, l, b, o, w)::tallyman.new_job order by n)
    into v_rows
    from (select row_number() over () as n, r.*
            from json_to_recordset(p_jobs)
              as r (s integer, k text, p json, m smallint, t text, d double precision, at timestamptz, c text,
                    x text, xk interval, l text, b text, o boolean, w text)) numbered;

  -- 1. Keys, in sorted order so that two writers cannot deadlock. Who inserts a key owns the job; a key that is
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

  -- 2. Lanes: locked, in sorted order, before any seq is drawn: so within a lane seq order is commit order.
  --    The loop is for a lane that retention removed between the two statements.
  loop
    insert into tallyman.lanes (tenant_id, queue, key, stream)
    select distinct on (r.t, p_queues[r.s], r.l) r.t, p_queues[r.s], r.l, v_streams[r.s]
      from unnest(v_rows) r
     where r.l is not null and (r.x is null or r.ord = any (v_won_ords))
       and not exists (select 1 from tallyman.lanes e
                        where e.tenant_id = r.t and e.queue = p_queues[r.s] and e.key = r.l)
     order by r.t, p_queues[r.s], r.l
    on conflict do nothing;
    select count(distinct (r.t, p_queues[r.s], r.l)) into v_wanted
      from unnest(v_rows) r where r.l is not null and (r.x is null or r.ord = any (v_won_ords));
    select array_agg(l.id) into v_lanes
      from (select e.id
              from tallyman.lanes e
              join (select distinct r.t, p_queues[r.s] as q, r.l
                      from unnest(v_rows) r where r.l is not null and (r.x is null or r.ord = any (v_won_ords))) w
                on e.tenant_id = w.t and e.queue = w.q and e.key = w.l
             order by e.tenant_id, e.queue, e.key
               for update of e) l;
    exit when coalesce(cardinality(v_lanes), 0) = v_wanted;
  end loop;

  -- 3. The jobs, and every lane of theirs that was at rest is put on its stream.
  with input as (
    select nextval('tallyman.positions') as n, r.*
      from unnest(v_rows) r where r.x is null or r.ord = any (v_won_ords)
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

  update tallyman.lanes l set policy = r.b
    from (select distinct on (r.t, p_queues[r.s], r.l) r.t, p_queues[r.s] as q, r.l, r.b
            from unnest(v_rows) r where r.l is not null order by r.t, p_queues[r.s], r.l, r.ord desc) r
   where l.id = any (v_lanes) and l.tenant_id = r.t and l.queue = r.q and l.key = r.l and l.policy <> r.b;

  if p_notify then
    perform tallyman.hint(p_queues);
  end if;

  -- 4. An answer for each, in the order of the input.
  return query
  select coalesce(w.id, e.job_id), w.id is null
    from unnest(v_rows) r
    left join unnest(v_won_ords, v_won_ids) as w (ord, id) on w.ord = r.ord
    left join tallyman.dedupe_keys e on w.id is null and e.tenant_id = r.t and e.kind = r.k and e.key = r.x
   order by r.ord;
end $$;

-- For other languages and for triggers: select tallyman.enqueue('greet', '{"name": "Ada"}').
-- What is left null comes from the kind's definition, which workers register when they start.
create function tallyman.enqueue(
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
  v_kind tallyman.kinds;
  v_limit integer := coalesce(nullif(current_setting('tallyman.max_payload_bytes', true), ''), '1048576')::integer;
  v_id bigint;
begin
  select k.* into v_kind from tallyman.kinds k where k.name = enqueue.kind;
  if not found then
    raise exception 'unknown kind "%"', enqueue.kind
      using errcode = 'TM001', hint = 'Start a worker that defines it once, or call tallyman.register_kind().';
  elsif delay < interval '0' then
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

create function tallyman.register_kind(
  name text, queue text default 'default', priority integer default 2, max_attempts integer default 5,
  lane_policy text default 'skip', latest_only boolean default false, dedupe_keep interval default null
) returns void
language sql as $$
  insert into tallyman.kinds as k (name, queue, priority, max_attempts, lane_policy, latest_only, dedupe_keep)
  values ($1, $2, $3, $4, $5, $6, $7)
  on conflict (name) do update
     set queue = excluded.queue, priority = excluded.priority, max_attempts = excluded.max_attempts,
         lane_policy = excluded.lane_policy, latest_only = excluded.latest_only, dedupe_keep = excluded.dedupe_keep
   where (k.queue, k.priority, k.max_attempts, k.lane_policy, k.latest_only, k.dedupe_keep) is distinct from
         (excluded.queue, excluded.priority, excluded.max_attempts, excluded.lane_policy, excluded.latest_only,
          excluded.dedupe_keep)
$$;
