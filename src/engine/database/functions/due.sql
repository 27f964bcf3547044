-- When a job that waits may run.

-- In a lane: not before its own time, nor before that of the lane's head. Null: the job has ended.
create or replace function tallyman.due_at(id bigint) returns timestamptz
language plpgsql stable as $$
begin
  return (select greatest(j.scheduled_at, l.due_at) from tallyman.jobs j
            left join tallyman.lanes l on l.id = j.lane where j.id = due_at.id);
end $$;

-- Lets those of the jobs that wait for their time run now. Returns how many. Locks jobs, then gates and lanes, each by id.
create or replace function tallyman.hasten(ids bigint[]) returns integer
language plpgsql as $$
declare
  v_jobs bigint[];
  v_lanes bigint[];
  v_queues text[];
begin
  -- Before a position is drawn: see enqueue.sql.
  perform pg_current_xact_id();
  select array_agg(w.id), array_agg(distinct w.lane) filter (where w.lane is not null), array_agg(distinct s.queue)
    into v_jobs, v_lanes, v_queues
    from (select j.id, j.lane, j.stream from tallyman.jobs j
           where j.id = any (ids) and j.scheduled_at > now() order by j.id for update) w
    join tallyman.streams s on s.id = w.stream;
  if v_jobs is null then
    return 0;
  end if;
  update tallyman.jobs j
     set scheduled_at = now(), pos = case when j.lane is null then nextval('tallyman.positions') else j.pos end
   where j.id = any (v_jobs);
  perform tallyman.wake_lane(l.id) from (select unnest(v_lanes) as id order by 1) l;
  perform tallyman.hint(v_queues);
  return cardinality(v_jobs);
end $$;
