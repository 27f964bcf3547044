-- What a person does to jobs, lanes and dead letters.

-- Whether a claim lists the position. Relies on claims_of_stream.
create or replace function tallyman.is_held(p_stream integer, p_pos bigint) returns boolean
language sql stable as $$
  select exists (select 1 from tallyman.claims c
                  where c.stream = p_stream and c.max_pos >= p_pos and p_pos = any (c.positions)
                    and c.expires_at > clock_timestamp() and c.stale_at > clock_timestamp())
$$;

-- What a job is doing now, over jobs, lanes and claims.
create or replace view tallyman.live_jobs with (security_invoker = true) as
select j.id, s.queue, s.priority, s.variant, j.kind, j.tenant_id, j.payload, j.attempts, j.max_attempts,
       j.created_at, j.scheduled_at, j.correlation_id, j.dedupe_key, j.last_error, j.latest_only,
       l.key as lane, case when j.lane is not null then j.pos end as seq,
       case when j.lane is null then case when j.pos is not null and tallyman.is_held(j.stream, j.pos) then 'RUNNING' else 'QUEUED' end
            when l.pos is not null and tallyman.is_held(l.stream, l.pos)
             and not exists (select 1 from tallyman.jobs e
                              where e.lane = j.lane and e.pos >= l.floor and e.pos < j.pos) then 'RUNNING'
            else 'QUEUED' end as status
  from tallyman.jobs j
  join tallyman.streams s on s.id = j.stream
  left join tallyman.lanes l on l.id = j.lane;

-- Cancels a job that has not ended, also a running one: its worker is notified, and whatever it still does about
-- the job has no effect. Returns whether there was one.
create or replace function tallyman.cancel(p_id bigint, p_reason text, p_keep_ms double precision) returns boolean
language plpgsql as $$
declare
  v_gone record;
begin
  with gone as (
    delete from tallyman.jobs j where j.id = p_id returning j.*
  ), kept as (
    insert into tallyman.history
      (id, finished_at, status, stream, attempts, max_attempts, created_at, scheduled_at, kind, tenant_id,
       payload, lane, seq, correlation_id, dedupe_key, last_error)
    select g.id, now(), 'CANCELLED', g.stream, g.attempts, g.max_attempts, g.created_at, g.scheduled_at, g.kind,
           g.tenant_id, g.payload, (select l.key from tallyman.lanes l where l.id = g.lane),
           case when g.lane is not null then g.pos end, g.correlation_id, g.dedupe_key,
           tallyman.error_of(json_build_object('code', 'CANCELLED', 'message', p_reason), g.last_error, g.attempts, null)
      from gone g
  ), keys as (
    update tallyman.dedupe_keys k set expires_at = now() + coalesce(k.keep, p_keep_ms * interval '1 millisecond')
      from gone g where g.dedupe_key is not null
       and k.tenant_id = g.tenant_id and k.kind = g.kind and k.key = g.dedupe_key
  )
  select g.id, g.pos, g.lane into v_gone from gone g;
  if not found then
    return false;
  end if;
  -- The position tells the worker which run is meant: a job that is retried at once has another one.
  perform pg_notify('tallyman_cancel', p_id || ' ' || coalesce(v_gone.pos::text, ''));
  -- It may have been the head that its lane waits for.
  if exists (select 1 from tallyman.lanes l where l.id = v_gone.lane and l.due_at is not null) then
    perform tallyman.wake_lane(v_gone.lane);
  end if;
  return true;
end $$;

-- Redrives work under the id it had: a dead letter, or a job of history that failed or was cancelled.
-- Attempts start again at 0; last_error goes on counting the redrives. In a lane it goes to the end, or to the head.
create or replace function tallyman.redrive(p_id bigint, p_to_head boolean default false) returns boolean
language plpgsql as $$
declare
  v record;
  v_stream integer;
  v_lane tallyman.lanes;
  v_pos bigint;
  v_error json;
begin
  perform pg_current_xact_id();
  if exists (select 1 from tallyman.jobs j where j.id = p_id) then
    return false;
  end if;
  delete from tallyman.dead_letters d where d.id = p_id and d.source = 'job'
  returning d.id, d.queue, d.priority, d.kind, d.tenant_id, d.payload, d.max_attempts, d.created_at, d.lane,
            coalesce(d.lane_policy, 'skip') as policy, d.latest_only, d.correlation_id, d.dedupe_key, d.last_error
       into v;
  if not found then
    delete from tallyman.history h using tallyman.streams s
     where h.id = p_id and h.status in ('FAILED', 'CANCELLED') and s.id = h.stream
    returning h.id, s.queue, s.priority, h.kind, h.tenant_id, h.payload, h.max_attempts, h.created_at, h.lane,
              'skip' as policy, false as latest_only, h.correlation_id, h.dedupe_key, h.last_error
         into v;
    if not found then
      return false;
    end if;
  end if;
  v_error := coalesce(v.last_error::jsonb, '{}') || jsonb_build_object(
    'redrives', coalesce((v.last_error ->> 'redrives')::integer, 0) + 1);
  v_stream := tallyman.stream_of(v.queue, v.priority);
  update tallyman.dedupe_keys k set expires_at = null where v.dedupe_key is not null
     and k.tenant_id = v.tenant_id and k.kind = v.kind and k.key = v.dedupe_key and k.job_id = v.id;
  if v.lane is not null then
    loop
      with made as (
        insert into tallyman.lanes (tenant_id, queue, key, stream)
        values (v.tenant_id, v.queue, v.lane, v_stream) on conflict do nothing returning id
      )
      insert into tallyman.lane_gates (lane, tenant_id, policy) select m.id, v.tenant_id, v.policy from made m;
      perform 1 from tallyman.lane_gates g
         join tallyman.lanes l on l.id = g.lane and l.tenant_id = v.tenant_id and l.queue = v.queue and l.key = v.lane
          for update of g;
      select l.* into v_lane from tallyman.lanes l
       where l.tenant_id = v.tenant_id and l.queue = v.queue and l.key = v.lane for update;
      exit when found;
    end loop;
  end if;
  if v.lane is not null and p_to_head then
    v_pos := least(v_lane.floor, coalesce((select min(j.pos) from tallyman.jobs j where j.lane = v_lane.id),
                                          v_lane.floor)) - 1;
  else
    v_pos := nextval('tallyman.positions');
  end if;
  insert into tallyman.jobs (id, pos, lane, stream, max_attempts, latest_only, created_at, kind, tenant_id, payload,
                             correlation_id, dedupe_key, last_error)
  values (v.id, v_pos, v_lane.id, v_stream, v.max_attempts, v.latest_only, v.created_at, v.kind, v.tenant_id,
          v.payload, v.correlation_id, v.dedupe_key, v_error);
  if v.lane is not null then
    update tallyman.lanes l
       set floor = case when p_to_head then v_pos else l.floor end,
           rewound = l.rewound or p_to_head,
           blocked_at = case when not (p_to_head and l.blocked_by = p_id) then l.blocked_at end,
           blocked_by = case when not (p_to_head and l.blocked_by = p_id) then l.blocked_by end
     where l.id = v_lane.id;
    perform tallyman.wake_lane(v_lane.id);
  end if;
  perform tallyman.hint(array[v.queue]);
  return true;
end $$;

-- Redrives many: their gates are locked in order first. Returns how many.
create or replace function tallyman.redrive_many(p_ids bigint[], p_to_head boolean default false) returns integer
language plpgsql as $$
begin
  perform 1 from tallyman.dead_letters d where d.id = any (p_ids) order by d.id for update;
  perform 1 from tallyman.dead_letters d
    join tallyman.dedupe_keys k on k.tenant_id = d.tenant_id and k.kind = d.kind and k.key = d.dedupe_key
   where d.id = any (p_ids) order by k.tenant_id, k.kind, k.key for update of k;
  perform 1 from tallyman.lane_gates g
   where g.lane in (select l.id from tallyman.dead_letters d
                      join tallyman.lanes l on l.tenant_id = d.tenant_id and l.queue = d.queue and l.key = d.lane
                     where d.id = any (p_ids))
   order by g.lane for update;
  return (select count(*) filter (where tallyman.redrive(i.id, p_to_head))::integer from unnest(p_ids) as i (id));
end $$;

-- Puts a lane that is at rest, or waits for a head that is no longer the head, on its stream. Not a held one.
-- Waits for the lane's gate: what a writer is about to commit is part of what to decide on.
create or replace function tallyman.wake_lane(p_lane bigint) returns void
language plpgsql as $$
begin
  perform 1 from tallyman.lane_gates g where g.lane = p_lane for update;
  perform 1 from tallyman.lanes l where l.id = p_lane for update;
  perform tallyman.rest_lanes(array[l.id], array[l.floor], true)
     from tallyman.lanes l where l.id = p_lane and l.pos is null and l.blocked_at is null;
end $$;

-- Ends a block: the lane goes on with what waits behind the job that blocked it.
create or replace function tallyman.unblock(p_lane bigint) returns boolean
language plpgsql as $$
declare
  v_queue text;
begin
  perform 1 from tallyman.lane_gates g where g.lane = p_lane for update;
  update tallyman.lanes l set blocked_at = null, blocked_by = null
   where l.id = p_lane and l.blocked_at is not null returning l.queue into v_queue;
  if v_queue is null then
    return false;
  end if;
  perform tallyman.wake_lane(p_lane);
  perform tallyman.hint(array[v_queue]);
  return true;
end $$;

create or replace function tallyman.discard(p_ids bigint[]) returns integer
language sql as $$
  select d.id from tallyman.dead_letters d where d.id = any (p_ids) order by d.id for update;
  select k.job_id from tallyman.dead_letters d
    join tallyman.dedupe_keys k on k.tenant_id = d.tenant_id and k.kind = d.kind and k.key = d.dedupe_key
   where d.id = any (p_ids) order by k.tenant_id, k.kind, k.key for update of k;
  with gone as (
    delete from tallyman.dead_letters d where d.id = any (p_ids) returning d.*
  ), keys as (
    update tallyman.dedupe_keys k set expires_at = now()
      from gone g where g.dedupe_key is not null
       and k.tenant_id = g.tenant_id and k.kind = g.kind and k.key = g.dedupe_key
  )
  select count(*)::integer from gone
$$;

-- Runs a job again. One that failed, was cancelled or is a dead letter starts over; one that waits runs now.
create or replace function tallyman.retry(p_id bigint) returns boolean
language plpgsql as $$
declare
  v_job tallyman.jobs;
  v_queue text;
begin
  perform pg_current_xact_id();
  select j.* into v_job from tallyman.jobs j where j.id = p_id for update;
  if not found then
    return tallyman.redrive(p_id);
  end if;
  if v_job.scheduled_at <= now() then
    return false;
  end if;
  select s.queue into v_queue from tallyman.streams s where s.id = v_job.stream;
  if v_job.lane is null then
    update tallyman.jobs j set scheduled_at = now(), pos = nextval('tallyman.positions') where j.id = p_id;
  else
    update tallyman.jobs j set scheduled_at = now() where j.id = p_id;
    perform tallyman.wake_lane(v_job.lane);
  end if;
  perform tallyman.hint(array[v_queue]);
  return true;
end $$;
