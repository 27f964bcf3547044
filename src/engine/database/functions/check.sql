-- Finds work that can never move, and rows that contradict each other. In a healthy database it answers nothing, at any
-- moment, also while workers run: each row is a bug, or a change of the tables by hand. It reads whole tables: for tests,
-- and for `tallyman doctor jobs`.
create or replace function tallyman.check() returns table (problem text, id bigint, detail text)
language sql stable as $$
  with held as materialized (
    select c.token, c.stream, p.pos from tallyman.claims c, unnest(c.positions) as p (pos)
  )
  select 'job below the floor of its stream', j.id, format('position %s, floor %s', j.pos, s.floor)
    from tallyman.jobs j join tallyman.streams s on s.id = j.stream
   where j.lane is null and j.pos < s.floor
     and not exists (select 1 from held h where h.stream = j.stream and h.pos = j.pos)
  union all
  select 'lane below the floor of its stream', l.id, format('lane %s, position %s, floor %s', l.key, l.pos, s.floor)
    from tallyman.lanes l join tallyman.streams s on s.id = l.stream
   where l.pos < s.floor and not exists (select 1 from held h where h.stream = l.stream and h.pos = l.pos)
  union all
  select 'lane at rest with work', l.id, format('lane %s, first job %s', l.key, min(j.id))
    from tallyman.lanes l join tallyman.jobs j on j.lane = l.id
   where l.pos is null and l.due_at is null and l.blocked_at is null group by l.id
  union all
  select 'lane waits longer than its head', l.id, format('lane %s, due %s, head due %s', l.key, l.due_at, h.scheduled_at)
    from tallyman.lanes l
    left join lateral (select j.scheduled_at from tallyman.jobs j where j.lane = l.id order by j.pos limit 1) h on true
   where l.due_at is not null and l.due_at > coalesce(h.scheduled_at, '-infinity')
  union all
  select 'blocked lane on its stream', l.id, format('lane %s', l.key)
    from tallyman.lanes l
   where l.blocked_at is not null and (l.due_at is not null or l.pos is not null
     and not exists (select 1 from held h where h.stream = l.stream and h.pos = l.pos))
  union all
  select 'job below the floor of its lane', j.id, format('lane %s, seq %s, floor %s', l.key, j.pos, l.floor)
    from tallyman.jobs j join tallyman.lanes l on l.id = j.lane where j.pos < l.floor
  union all
  select 'job of a lane that does not exist', j.id, format('lane %s', j.lane)
    from tallyman.jobs j where j.lane is not null and not exists (select 1 from tallyman.lanes l where l.id = j.lane)
  union all
  select 'lane without a gate', l.id, format('lane %s', l.key)
    from tallyman.lanes l where not exists (select 1 from tallyman.lane_gates g where g.lane = l.id)
  union all
  select 'job of a stream that does not exist', j.id, format('stream %s', j.stream)
    from tallyman.jobs j where not exists (select 1 from tallyman.streams s where s.id = j.stream)
  union all
  select 'position held twice', h.pos, format('stream %s, claims %s', h.stream, array_agg(h.token))
    from held h group by h.stream, h.pos having count(*) > 1
  union all
  select 'claim that its stream overlooks', c.token, format('stream %s, first token %s', s.id, s.first_token)
    from tallyman.claims c join tallyman.streams s on s.id = c.stream where c.token < s.first_token
  union all
  select 'floor above the cursor', s.id, format('queue %s, floor %s, cursor %s', s.queue, s.floor, s.cursor)
    from tallyman.streams s where s.floor > s.cursor
  union all
  select 'claim of a worker that is gone', c.token, format('worker %s, lease ended %s', c.worker, c.expires_at)
    from tallyman.claims c left join tallyman.workers w on w.id = c.worker
   where least(c.expires_at, c.stale_at) < clock_timestamp() - interval '60 seconds'
      or w.missing_since < clock_timestamp() - interval '60 seconds'
$$;
