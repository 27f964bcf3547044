-- What a worker does with its claims besides completing jobs: keep them, get more of a lane, give them back. And what puts
-- due work on its stream.

-- Puts what has fallen due on its stream: delayed and retried jobs, lanes whose head was waiting.
-- Returns in how many milliseconds the next one falls due, null for none. Relies on jobs_due and lanes_due.
create or replace function tallyman.promote(p_limit integer, out promoted integer, out next_due_ms double precision)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set jit = off
as $$
declare
  v_lanes integer;
begin
  promoted := 0;
  if exists (select 1 from tallyman.jobs j where j.lane is null and j.pos is null and j.scheduled_at <= now())
  or exists (select 1 from tallyman.lanes l where l.due_at <= now()) then
    perform pg_current_xact_id();
    perform set_config('synchronous_commit', 'off', true);
    with due as (
      select j.id from tallyman.jobs j
       where j.lane is null and j.pos is null and j.scheduled_at <= now()
       order by j.scheduled_at, j.id limit p_limit for update skip locked
    ), numbered as (
      select d.id, nextval('tallyman.positions') as pos from due d
    )
    update tallyman.jobs j set pos = n.pos from numbered n where j.id = n.id;
    get diagnostics promoted = row_count;
    with due as (
      select l.id from tallyman.lanes l
       where l.due_at <= now() order by l.due_at limit p_limit for update skip locked
    ), numbered as (
      select d.id, nextval('tallyman.positions') as pos from due d
    )
    update tallyman.lanes l set pos = n.pos, due_at = null from numbered n where l.id = n.id;
    get diagnostics v_lanes = row_count;
    promoted := promoted + v_lanes;
  end if;
  -- greatest() ignores nulls: without the WHERE, nothing waiting would read as "due now".
  select greatest(0, extract(epoch from next.at - clock_timestamp()) * 1000) into next_due_ms
    from (select least(
            (select min(j.scheduled_at) from tallyman.jobs j where j.lane is null and j.pos is null),
            (select min(l.due_at) from tallyman.lanes l where l.due_at is not null)) as at) next
   where next.at is not null;
end $$;

-- The heartbeat: everything a worker holds, in one statement. Returns the tokens that it still has.
create or replace function tallyman.renew(p_worker text, p_lease_ms integer, p_stale_ms integer) returns setof bigint
language plpgsql as $$
begin
  -- A renewal that a crash of the server forgets ends the lease early: safe.
  perform set_config('synchronous_commit', 'off', true);
  return query
  with mine as (
    select c.token from tallyman.claims c
     where c.worker = p_worker and c.expires_at > clock_timestamp() and c.stale_at > clock_timestamp()
     order by c.token for no key update
  )
  update tallyman.claims c
     set renewed_at = clock_timestamp(),
         expires_at = clock_timestamp() + p_lease_ms * interval '1 millisecond',
         stale_at = clock_timestamp() + p_stale_ms * interval '1 millisecond'
    from mine m where c.token = m.token
  returning c.token;
end $$;

-- More jobs of a lane that a claim holds, behind those that it has handed out. Returns as claim does. Nothing: there is
-- none, or the lane has to go back first (its head was changed by a person, its queue is paused or at its limit).
--
-- No lock on the lane: within it seq order is commit order, so what is visible is the beginning of what there is.
create or replace function tallyman.fetch_lane(
  p_worker text, p_token bigint, p_lane bigint, p_lane_pos bigint,
  p_after bigint,          -- the last seq that was handed out
  p_limit integer,
  p_unconfirmed integer    -- handed out and not settled, with these
) returns table (positions bigint[], kinds json, payloads text, created json, unusual json)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off
set enable_hashjoin = off set enable_mergejoin = off set jit = off set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  v_claim record;
  v_queue tallyman.queues;
  v_limit integer := p_limit;
begin
  perform set_config('synchronous_commit', 'off', true);
  select c.lane_jobs, s.queue into v_claim
    from tallyman.claims c join tallyman.streams s on s.id = c.stream
    join tallyman.lanes l on l.id = p_lane and l.pos = p_lane_pos and l.stream = c.stream and not l.rewound
     and l.blocked_at is null
   where c.token = p_token and c.worker = p_worker and c.expires_at > clock_timestamp() and c.stale_at > clock_timestamp();
  if not found then
    return;
  end if;
  -- If the worker dies, so many may have been started.
  if p_unconfirmed > v_claim.lane_jobs then
    update tallyman.claims c set lane_jobs = p_unconfirmed * 2 where c.token = p_token and c.worker = p_worker;
  end if;
  select * into v_queue from tallyman.queues q where q.name = v_claim.queue;
  if v_queue.paused_at is not null then
    return;
  elsif v_queue.rate_per_second is not null then
    v_limit := least(v_limit, tallyman.allowance(v_queue, true));
  end if;
  -- Relies on jobs_in_lane.
  select array_agg((f.j).pos), to_json(array_agg((f.j).kind)), string_agg(tallyman.small_payload(f.j), ','),
         to_json(array_agg(date_part('epoch', (f.j).created_at))),
         json_object_agg(p_lane || ':' || (f.j).pos, f.unusual) filter (where f.unusual is not null)
    into positions, kinds, payloads, created, unusual
    from (select j, tallyman.unusual(j, j.latest_only and exists (
                      select 1 from tallyman.jobs n where n.lane = j.lane and n.pos > j.pos and n.kind = j.kind)) as unusual
            from tallyman.jobs j where j.lane = p_lane and j.pos > p_after order by j.pos limit v_limit) f;
  if positions is null then
    return;
  end if;
  if v_queue.rate_per_second is not null then
    update tallyman.queues q set rate_tokens = q.rate_tokens - cardinality(positions) where q.name = v_queue.name;
  end if;
  return next;
end $$;

-- Takes away own claims of which nothing is left, in the order of tokens, as every function that locks several does.
create or replace function tallyman.drop_claims(p_worker text, p_tokens bigint[]) returns void
language plpgsql
set enable_seqscan = off set plan_cache_mode = force_generic_plan
as $$
begin
  if p_tokens is null or cardinality(p_tokens) = 0 then
    return;
  end if;
  if cardinality(p_tokens) > 1 then
    perform 1 from tallyman.claims c where c.token = any (p_tokens) and c.worker = p_worker order by c.token for update;
  end if;
  delete from tallyman.claims c where c.token = any (p_tokens) and c.worker = p_worker;
end $$;

-- Hands back what was claimed and not started. Costs no attempt.
create or replace function tallyman.release(p_worker text, p_tokens bigint[], p_positions bigint[]) returns void
language plpgsql as $$
declare
  v_held bigint[];
  v_streams integer[];
begin
  perform set_config('synchronous_commit', 'off', true);
  select array_agg(c.token), array_agg(c.stream) into v_held, v_streams
    from (select c.token, c.stream from tallyman.claims c
           where c.token = any (p_tokens) and c.worker = p_worker order by c.token for update) c;
  update tallyman.claims c
     set positions = array(select p from unnest(c.positions) as p
                           except
                           select r.pos from unnest(p_tokens, p_positions) as r (token, pos) where r.token = c.token)
   where c.token = any (v_held);
  delete from tallyman.claims c where c.token = any (v_held) and cardinality(c.positions) = 0;
  perform tallyman.free_positions(array_agg(h.stream), array_agg(r.pos))
     from unnest(p_tokens, p_positions) as r (token, pos) join unnest(v_held, v_streams) as h (token, stream) using (token);
end $$;

-- Claims of a worker that it does not know of: their answer was lost on its way.
create or replace function tallyman.release_unknown(p_worker text, p_known bigint[]) returns integer
language plpgsql as $$
declare
  v_tokens bigint[];
  v_positions bigint[];
begin
  select array_agg(c.token), array_agg(p) into v_tokens, v_positions
    from tallyman.claims c, unnest(c.positions) p where c.worker = p_worker and not c.token = any (p_known);
  if v_tokens is null then
    return 0;
  end if;
  perform tallyman.release(p_worker, v_tokens, v_positions);
  return (select count(distinct t) from unnest(v_tokens) t);
end $$;

-- Positions that became free lie behind the cursor of their stream, so it goes back to them. Last of all locks.
create or replace function tallyman.free_positions(p_streams integer[], p_positions bigint[]) returns void
language plpgsql as $$
begin
  perform 1 from tallyman.streams s where s.id = any (p_streams) order by s.id for update;
  update tallyman.streams s set cursor = least(s.cursor, f.lowest), floor = least(s.floor, f.lowest)
    from (select d.stream, min(d.pos) as lowest from unnest(p_streams, p_positions) as d (stream, pos) group by d.stream) f
   where s.id = f.stream;
end $$;
