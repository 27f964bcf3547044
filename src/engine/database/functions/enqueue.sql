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
