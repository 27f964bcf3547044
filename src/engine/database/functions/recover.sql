-- What keeps work moving when workers die: which workers are present, and what happens to the work of those that are not.

-- A worker is present while one of its sessions holds this lock, shared.
create or replace function tallyman.presence_key(p_worker text) returns bigint
language sql immutable as $$ select hashtextextended(p_worker, 7411) $$;

-- Marks a worker as present. The lock ends with the session, so call it on a session that is kept, and again after a
-- session was lost.
create or replace function tallyman.present(p_worker text) returns void
language plpgsql as $$
begin
  perform set_config('synchronous_commit', 'off', true);
  perform pg_advisory_lock_shared(tallyman.presence_key(p_worker));
  insert into tallyman.workers as w (id) values (p_worker)
  on conflict (id) do update set missing_since = null where w.missing_since is not null;
end $$;

-- Whether no session holds a worker's lock. Until the end of the transaction it cannot come back then. A session does not
-- conflict with itself: one of the pool's may hold the lock of a worker of its own process.
create or replace function tallyman.is_absent(p_worker text) returns boolean
language plpgsql as $$
declare
  v_key constant bigint := tallyman.presence_key(p_worker);
begin
  return pg_try_advisory_xact_lock(v_key)
     and not exists (select 1 from pg_locks l
                      where l.locktype = 'advisory' and l.mode = 'ShareLock' and l.pid = pg_backend_pid() and l.objsubid = 1
                        and l.classid::bigint = (v_key >> 32) & 4294967295 and l.objid::bigint = v_key & 4294967295);
end $$;

-- A worker stops: what it still holds is free at once, at no cost.
create or replace function tallyman.leave(p_worker text) returns void
language plpgsql as $$
begin
  perform tallyman.release_unknown(p_worker, '{}');
  delete from tallyman.workers w where w.id = p_worker;
end $$;

-- What a worker does between two claims, in one statement: put due work on its stream, and find workers that are gone.
-- `expired` tells that a lease is past.
create or replace function tallyman.make_rounds(
  p_limit integer, p_all_return boolean,
  out promoted integer, out next_due_ms double precision, out gone text[], out look_again_ms double precision,
  out expired boolean
)
language plpgsql as $$
begin
  select p.promoted, p.next_due_ms, a.gone, a.look_again_ms into promoted, next_due_ms, gone, look_again_ms
    from tallyman.promote(p_limit) p, tallyman.absent_workers(p_all_return) a;
  expired := exists (select 1 from tallyman.claims c
                      where c.expires_at <= clock_timestamp() or c.stale_at <= clock_timestamp());
end $$;

-- Finds workers that are gone. A free lock is noted first: a live worker that has lost its connection has a moment to
-- come back. After a start of the server all workers have to reconnect, so there is more time. The same holds after a
-- fail-over; only workers whose own connections were lost know of it (p_all_return).
-- Returns the workers whose time is over, and in how many milliseconds to look again if one is missing.
create or replace function tallyman.absent_workers(p_all_return boolean, out gone text[], out look_again_ms double precision)
language plpgsql as $$
declare
  v_worker tallyman.workers;
  v_grace constant interval := case when p_all_return
                                      or pg_postmaster_start_time() > clock_timestamp() - interval '15 seconds'
                                    then interval '5 seconds' else interval '700 milliseconds' end;
  v_over timestamptz;
begin
  for v_worker in select w.* from tallyman.workers w order by w.id loop
    -- Another process that checks at this moment holds the lock as well: then that one recovers the worker.
    continue when not tallyman.is_absent(v_worker.id);
    if v_worker.missing_since is null then
      perform set_config('synchronous_commit', 'off', true);
      update tallyman.workers w set missing_since = clock_timestamp()
       where w.id = v_worker.id and w.missing_since is null;
      v_worker.missing_since := clock_timestamp();
    end if;
    v_over := v_worker.missing_since + v_grace;
    if v_over <= clock_timestamp() then
      gone := gone || v_worker.id;
    else
      look_again_ms := least(look_again_ms, extract(epoch from v_over - clock_timestamp()) * 1000);
    end if;
  end loop;
end $$;

-- Records that jobs are about to start. If the worker dies, only these can be charged. Returns the claims that
-- are no longer the worker's: their jobs must not be started.
create or replace function tallyman.mark_started(p_worker text, p_tokens bigint[], p_ids bigint[]) returns bigint[]
language plpgsql as $$
declare
  v_held bigint[];
begin
  -- If a crash of the server forgets the mark, no job is charged.
  perform set_config('synchronous_commit', 'off', true);
  v_held := array(select c.token from tallyman.claims c
                   where c.token = any (p_tokens) and c.worker = p_worker
                     and c.expires_at > clock_timestamp() and c.stale_at > clock_timestamp()
                   order by c.token for no key update);
  update tallyman.claims c
     set started = c.started || array(select d.id from unnest(p_tokens, p_ids) as d (token, id) where d.token = c.token)
   where c.token = any (v_held);
  return array(select distinct t from unnest(p_tokens) t where not t = any (v_held));
end $$;

-- Takes back what workers held that are gone, or whose lease is past: everything of such a worker, in one transaction.
-- p_gone are those that absent_workers named; it is checked again here, and they cannot come back before the commit.
-- Claims that are locked (a settle is under way) are left for the next time.
create or replace function tallyman.recover(p_gone text[], p_delays json, p_keep_ms double precision)
returns table (worker text, freed integer, counted bigint, status text)
language plpgsql
set jit = off
as $$
#variable_conflict use_column
declare
  v_workers text[];
  v_worker text;
  v_taken record;
  v_streams integer[] := '{}';
  v_positions bigint[] := '{}';
begin
  v_workers := array(
    select w.id from tallyman.workers w
     where w.id = any (p_gone) and w.missing_since is not null and tallyman.is_absent(w.id)
    union
    select c.worker from tallyman.claims c
     where c.expires_at <= clock_timestamp() or c.stale_at <= clock_timestamp()
    order by 1);
  if cardinality(v_workers) = 0 then
    return;
  end if;
  perform pg_current_xact_id();
  -- Streams that do not exist yet are made in sorted order, so that two recoveries cannot deadlock.
  perform tallyman.stream_of(n.queue, n.priority, n.variant)
     from (select distinct s.queue, s.priority, v.variant
             from tallyman.claims c join tallyman.streams s on s.id = c.stream,
                  unnest(array['alone', 'suspect']) as v (variant)
            where c.worker = any (v_workers)
            order by s.queue, s.priority, v.variant) n;
  foreach v_worker in array v_workers loop
    v_taken := tallyman.take_back(v_worker, p_delays, p_keep_ms);
    v_streams := v_streams || v_taken.streams;
    v_positions := v_positions || v_taken.positions;
    if v_taken.freed > 0 then
      worker := v_worker;
      freed := v_taken.freed;
      counted := v_taken.counted;
      status := v_taken.status;
      return next;
    end if;
    delete from tallyman.workers w
     where w.id = v_worker and w.missing_since is not null and w.id = any (p_gone)
       and not exists (select 1 from tallyman.claims c where c.worker = v_worker);
  end loop;
  -- The last locks, for all workers together: two recoveries take them in the same order.
  perform tallyman.free_positions(v_streams, v_positions);
end $$;

-- Takes back everything that one dead worker held, and decides which job is charged:
--
--   one isolated job had started      that job, whatever ran beside it. It is charged for this crash, and for those before
--                                     that it is suspected of; the others go back as they are
--   several isolated ones had         one of them: next time each runs with no other suspect beside it (`alone`)
--   it held one job, known to start   that job
--   anything else                     unknown: all it held become suspects, claimed and started one by one
--
-- Returns what was freed; the caller moves the cursors of the streams back.
create or replace function tallyman.take_back(
  p_worker text, p_delays json, p_keep_ms double precision,
  out freed integer, out counted bigint, out status text, out streams integer[], out positions bigint[]
)
language plpgsql
set jit = off
as $$
#variable_conflict use_column
declare
  v_tokens bigint[];
  v_items tallyman.held_item[];
  v_started bigint[];
  v_is_known boolean;
  v_crash bigint;
begin
  v_tokens := array(select c.token from tallyman.claims c where c.worker = p_worker order by c.token for update skip locked);
  v_items := tallyman.held_items(v_tokens);
  delete from tallyman.claims c where c.token = any (v_tokens);
  freed := coalesce(cardinality(v_items), 0);
  if freed = 0 then
    return;
  end if;

  select array_agg(i.job) filter (where i.is_isolated and i.has_started) into v_started from unnest(v_items) i;
  if v_started is null and freed = 1 and (v_items[1]).has_started then
    v_started := array[(v_items[1]).job];
  end if;
  v_is_known := coalesce(cardinality(v_started), 0) = 1;

  if v_is_known then
    select c.id, c.status into counted, status
      from unnest(v_items) i,
           lateral tallyman.charge_crash(i, p_worker, p_delays, p_keep_ms) c
     where i.job = v_started[1] and i.has_started;
  end if;

  if not v_is_known and exists (select 1 from unnest(v_items) i where not i.is_isolated or i.has_started) then
    insert into tallyman.crashes (id, worker) values (nextval('tallyman.tokens'), p_worker) returning id into v_crash;
  end if;

  -- What is charged has been dealt with.
  select array_agg(m.stream), array_agg(m.pos) into streams, positions
    from unnest(v_items) i,
         lateral (select case when v_is_known or i.is_isolated and not i.has_started then i.stream
                              else tallyman.suspect(i, v_crash) end as stream, i.pos) m
   where counted is null or i.job is distinct from counted;
end $$;

-- What is left of some claims. A blocked lane that is still listed (its worker died at the wrong moment) loses its
-- place on the stream here, and is no item. Lanes are locked; one that a person has locked stays on its stream as it is.
create or replace function tallyman.held_items(p_tokens bigint[]) returns tallyman.held_item[]
language plpgsql
set enable_seqscan = off set jit = off
as $$
declare
  v_lanes bigint[];
begin
  v_lanes := array(
    select l.id
      from tallyman.claims c, unnest(c.positions) as p (pos), tallyman.lanes l
     where c.token = any (p_tokens) and l.stream = c.stream and l.pos = p.pos
     order by l.id for update of l skip locked);
  update tallyman.lanes l set pos = null where l.id = any (v_lanes) and l.blocked_at is not null;
  return array(
    select row(c.token, s.id, s.queue, s.priority, s.variant, p.pos, null, j.id, j.pos, c.lane_jobs, c.isolated,
               coalesce(j.id = any (c.started), false))::tallyman.held_item
      from tallyman.claims c join tallyman.streams s on s.id = c.stream, unnest(c.positions) as p (pos), tallyman.jobs j
     where c.token = any (p_tokens) and j.stream = c.stream and j.lane is null and j.pos = p.pos
    union all
    select row(c.token, s.id, s.queue, s.priority, s.variant, p.pos, l.id, h.id, h.pos, c.lane_jobs, c.isolated,
               coalesce(h.id = any (c.started), false))::tallyman.held_item
      from tallyman.claims c join tallyman.streams s on s.id = c.stream, unnest(c.positions) as p (pos), tallyman.lanes l
      left join lateral (select j.id, j.pos from tallyman.jobs j
                          where j.lane = l.id and j.pos >= l.floor order by j.pos limit 1) h on true
     where c.token = any (p_tokens) and l.stream = c.stream and l.pos = p.pos and l.id = any (v_lanes)
    union all
    select row(c.token, s.id, s.queue, s.priority, s.variant, p.pos, null, null, null, 0, c.isolated, false)::tallyman.held_item
      from tallyman.claims c join tallyman.streams s on s.id = c.stream, unnest(c.positions) as p (pos), tallyman.lanes l
     where c.token = any (p_tokens) and l.stream = c.stream and l.pos = p.pos and not l.id = any (v_lanes));
end $$;

-- A crash that this job has caused: an attempt, and one for each crash before that it is suspected of and that has no other
-- cause yet. From now on it runs alone.
create or replace function tallyman.charge_crash(
  p_item tallyman.held_item, p_worker text, p_delays json, p_keep_ms double precision
) returns table (id bigint, status text)
language plpgsql as $$
#variable_conflict use_column
declare
  v_job tallyman.jobs;
  v_before integer;
begin
  update tallyman.jobs j set stream = tallyman.stream_of(p_item.queue, p_item.priority, 'alone')
   where j.id = p_item.job and j.pos = p_item.job_pos returning j.* into v_job;
  update tallyman.crashes c set caused_by = v_job.id where c.id = any (v_job.suspected_of) and c.caused_by is null;
  get diagnostics v_before = row_count;
  select f.id, f.status into id, status
    from tallyman.attempt_failed(json_build_array(json_build_object(
      'id', v_job.id, 'pos', v_job.pos, 'cost', v_before + 1,
      'error', json_build_object('code', 'LEASE_EXPIRED',
        'message', 'lease expired, worker ' || p_worker || ': it died, or gave no sign of life, while it ran this job'),
      'delay_ms', coalesce((p_delays -> v_job.kind ->> (v_job.attempts + v_before))::double precision,
                           least(1024, 2 ^ (v_job.attempts + v_before + 1)) * 1000 * (1 + random() * 0.1)))),
      p_worker, p_keep_ms) f;
  if v_job.lane is not null then
    perform tallyman.rest_lanes(array[v_job.lane],
      array[case when status = 'QUEUED' then v_job.pos else v_job.pos + 1 end], false);
  end if;
  return next;
end $$;

-- Marks what may have been started, and answers the stream that it lies on from now on. In a lane that is as many jobs as
-- the claim had handed out: the lane goes to the stream of its head, which stays suspect until it ends.
create or replace function tallyman.suspect(p_item tallyman.held_item, p_crash bigint) returns integer
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  v_suspect constant integer := tallyman.stream_of(p_item.queue, p_item.priority, 'suspect');
  v_alone constant integer := tallyman.stream_of(p_item.queue, p_item.priority, 'alone');
  v_stream integer;
begin
  if p_item.job is null then
    return p_item.stream;
  elsif p_item.lane is null then
    update tallyman.jobs j
       set suspected_of = j.suspected_of || p_crash,
           stream = case when j.suspected_of is null and not p_item.is_isolated then v_suspect else v_alone end
     where j.id = p_item.job and j.pos = p_item.job_pos returning j.stream into v_stream;
    return v_stream;
  end if;
  update tallyman.jobs j
     set suspected_of = j.suspected_of || p_crash,
           stream = case when j.suspected_of is null and not p_item.is_isolated then v_suspect else v_alone end
    from (select h.id from tallyman.jobs h where h.lane = p_item.lane and h.pos >= p_item.job_pos
           order by h.pos limit greatest(p_item.lane_jobs, 1)) h
   where j.id = h.id;
  update tallyman.lanes l
     set stream = (select j.stream from tallyman.jobs j where j.id = p_item.job)
   where l.id = p_item.lane returning l.stream into v_stream;
  return v_stream;
end $$;
