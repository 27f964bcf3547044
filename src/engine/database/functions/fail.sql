-- Failed attempts, and jobs that a worker cannot run.

-- Takes attempts from jobs and decides: again later, FAILED, or DEAD_LETTER. Not fenced: callers are.
-- items: [{id, pos, attempts, cost, error: {...}, delay_ms, permanent, dead}]
--
-- `attempts` is what the caller knows of: in a lane the position stays, and this is what keeps a failure whose answer was
-- lost from being counted twice. `cost` is 1 unless told; with 0 the job is handed back for later at no cost. `dead` ends
-- it as a dead letter whatever attempts are left.
create or replace function tallyman.attempt_failed(p_items json, p_worker text, p_keep_ms double precision)
returns table (id bigint, status text, lane bigint)
language plpgsql
set enable_seqscan = off set enable_bitmapscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
as $$
#variable_conflict use_column
begin
  -- Jobs before keys, and keys in sorted order; see complete_exactly. Only a permanent failure ends its key.
  if exists (select 1 from json_to_recordset(p_items) as i (permanent boolean) where i.permanent) then
    perform 1 from json_to_recordset(p_items) as i (id bigint, pos bigint, permanent boolean)
      join tallyman.jobs j on j.id = i.id and j.pos = i.pos
     where i.permanent and j.dedupe_key is not null order by j.id for update of j;
    perform 1 from json_to_recordset(p_items) as i (id bigint, pos bigint, permanent boolean)
      join tallyman.jobs j on j.id = i.id and j.pos = i.pos
      join tallyman.dedupe_keys k on k.tenant_id = j.tenant_id and k.kind = j.kind and k.key = j.dedupe_key
     where i.permanent order by k.tenant_id, k.kind, k.key for update of k;
  end if;
  return query
  with item as materialized (
    select i.id, i.pos, i.attempts, i.error, i.delay_ms, coalesce(i.cost, 1) as cost,
           coalesce(i.permanent, false) as permanent, coalesce(i.dead, false) as dead
      from json_to_recordset(p_items)
        as i (id bigint, pos bigint, attempts smallint, cost integer, error json, delay_ms double precision,
              permanent boolean, dead boolean)
  ), again as (
    update tallyman.jobs j
       set attempts = j.attempts + i.cost,
           suspected_of = case when i.cost = 0 then j.suspected_of end,
           last_error = tallyman.error_of(i.error, j.last_error, j.attempts + i.cost, p_worker),
           scheduled_at = now() + i.delay_ms * interval '1 millisecond',
           pos = case when j.lane is not null then j.pos end
      from item i
     where j.id = i.id and j.pos = i.pos and (j.lane is null or j.attempts <= coalesce(i.attempts, j.attempts))
       and (i.cost = 0 or not i.permanent and not i.dead and j.attempts + i.cost < j.max_attempts)
    returning j.id, j.lane
  ), ended as (
    delete from tallyman.jobs j using item i
     where j.id = i.id and j.pos = i.pos and (j.lane is null or j.attempts <= coalesce(i.attempts, j.attempts))
       and i.cost > 0 and (i.permanent or i.dead or j.attempts + i.cost >= j.max_attempts)
    returning j.*, i.permanent, i.cost,
              tallyman.error_of(i.error, j.last_error, j.attempts + i.cost, p_worker) as error
  ), named as materialized (
    select e.*, s.queue, s.priority, l.key as lane_key, g.policy
      from ended e join tallyman.streams s on s.id = e.stream left join tallyman.lanes l on l.id = e.lane
      left join tallyman.lane_gates g on g.lane = e.lane
  ), failed as (
    insert into tallyman.history
      (id, finished_at, status, stream, attempts, max_attempts, created_at, scheduled_at, kind, tenant_id,
       payload, lane, seq, worker, correlation_id, dedupe_key, last_error)
    select n.id, now(), 'FAILED', n.stream, n.attempts + n.cost, n.max_attempts, n.created_at, n.scheduled_at, n.kind,
           n.tenant_id, n.payload, n.lane_key, case when n.lane is not null then n.pos end, p_worker,
           n.correlation_id, n.dedupe_key, n.error
      from named n where n.permanent
  ), dead_lettered as (
    insert into tallyman.dead_letters
      (id, queue, kind, tenant_id, entity_id, priority, attempts, max_attempts, redrives, created_at,
       first_failed_at, last_failed_at, payload, lane, lane_policy, latest_only, seq, correlation_id, dedupe_key,
       last_error)
    select n.id, n.queue, n.kind, n.tenant_id, n.id::text, n.priority, n.attempts + n.cost, n.max_attempts,
           coalesce((n.error ->> 'redrives')::integer, 0), n.created_at, (n.error ->> 'first_failed_at')::timestamptz,
           now(), n.payload, n.lane_key, n.policy, n.latest_only, case when n.lane is not null then n.pos end,
           n.correlation_id, n.dedupe_key, n.error
      from named n where not n.permanent
  ), keys as (
    -- A dead letter may be redriven: its key stays taken until that is decided.
    update tallyman.dedupe_keys k set expires_at = now() + coalesce(k.keep, p_keep_ms * interval '1 millisecond')
      from named n where n.permanent and n.dedupe_key is not null
       and k.tenant_id = n.tenant_id and k.kind = n.kind and k.key = n.dedupe_key
  ), blocked as (
    update tallyman.lanes l set blocked_at = now(), blocked_by = n.id
      from named n where l.id = n.lane and n.policy = 'block'
  )
  select a.id, 'QUEUED', a.lane from again a
  union all
  select n.id, case when n.permanent then 'FAILED' else 'DEAD_LETTER' end, n.lane from named n;
end $$;

-- last_error: what went wrong, and since when.
create or replace function tallyman.error_of(p_error json, p_before json, p_attempt integer, p_worker text) returns json
language sql as $$
  select json_build_object(
    'code', p_error ->> 'code', 'message', p_error ->> 'message', 'stack', p_error ->> 'stack',
    'attempt', p_attempt, 'worker', p_worker, 'at', to_json(clock_timestamp()),
    'first_failed_at', coalesce(p_before -> 'first_failed_at', to_json(clock_timestamp())),
    'redrives', coalesce((p_before ->> 'redrives')::integer, 0))
$$;

-- A worker reports failures. items as in attempt_failed, plus `token`; of a job in a lane also `lane` and `lane_pos`: the
-- lane is let go with the failure, in one commit. LOST: another worker has taken the claim over. If a failure is reported
-- again, the answer is what became of it the first time. A job without an answer was cancelled.
create or replace function tallyman.fail(p_worker text, p_items json, p_keep_ms double precision)
returns table (id bigint, status text, let_go boolean, blocked boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_held bigint[] := tallyman.held_tokens(p_worker,
    array(select distinct i.token from json_to_recordset(p_items) as i (token bigint)));
  v_failed record;
begin
  for v_failed in
    select i.id, i.pos, i.lane, i.lane_pos, i.attempts, i.token = any (v_held) as is_held, f.status
      from json_to_recordset(p_items)
        as i (id bigint, pos bigint, lane bigint, lane_pos bigint, attempts smallint, token bigint)
      left join tallyman.attempt_failed(
        (select coalesce(json_agg(h), '[]') from json_array_elements(p_items) h
          where (h ->> 'token')::bigint = any (v_held)), p_worker, p_keep_ms) f on f.id = i.id
  loop
    id := v_failed.id;
    let_go := false;
    blocked := false;
    if not v_failed.is_held then
      status := 'LOST';
      return next;
      continue;
    end if;
    status := coalesce(v_failed.status,
      (select 'QUEUED' from tallyman.jobs j where j.id = v_failed.id and j.attempts > v_failed.attempts),
      (select 'DEAD_LETTER' from tallyman.dead_letters d where d.id = v_failed.id),
      (select h.status from tallyman.history h where h.id = v_failed.id and h.status = 'FAILED'));
    continue when status is null;
    if v_failed.lane is not null then
      perform tallyman.let_go(array[v_failed.lane], array[v_failed.lane_pos],
        array[case when status = 'QUEUED' then v_failed.pos else v_failed.pos + 1 end], array[true]);
      let_go := not exists (
        select 1 from tallyman.lanes l where l.id = v_failed.lane and l.pos = v_failed.lane_pos);
      blocked := exists (select 1 from tallyman.lanes l where l.id = v_failed.lane and l.blocked_by = v_failed.id);
    end if;
    return next;
  end loop;
end $$;

-- A worker hands over items whose kind it does not know: they wait on a stream that only workers which know the
-- kind look at. For a lane the kind is that of its head.
create or replace function tallyman.hand_over(
  p_worker text, p_tokens bigint[], p_streams integer[], p_positions bigint[], p_kinds text[]
) returns void
language plpgsql as $$
declare
  v_held bigint[];
  v_targets integer[];
begin
  v_held := array(select c.token from tallyman.claims c
                   where c.token = any (p_tokens) and c.worker = p_worker
                     and c.expires_at > clock_timestamp() and c.stale_at > clock_timestamp()
                   order by c.token for update);
  perform tallyman.stream_of(n.queue, n.priority, 'kind:' || n.kind)
     from (select distinct s.queue, s.priority, d.kind
             from unnest(p_streams, p_kinds) as d (stream, kind) join tallyman.streams s on s.id = d.stream
            order by s.queue, s.priority, d.kind) n;
  v_targets := array(
    select t.id
      from unnest(p_streams, p_kinds) with ordinality as d (stream, kind, n)
      join tallyman.streams s on s.id = d.stream,
           lateral (select tallyman.stream_of(s.queue, s.priority, 'kind:' || d.kind) as id) t
     order by d.n);
  update tallyman.jobs j set stream = d.target
    from unnest(p_tokens, p_streams, p_positions, v_targets) as d (token, stream, pos, target)
   where d.token = any (v_held) and j.stream = d.stream and j.lane is null and j.pos = d.pos;
  perform 1 from unnest(p_streams, p_positions) as d (stream, pos)
    join tallyman.lanes l on l.stream = d.stream and l.pos = d.pos order by l.id for update of l;
  update tallyman.lanes l set stream = d.target
    from unnest(p_tokens, p_streams, p_positions, v_targets) as d (token, stream, pos, target)
   where d.token = any (v_held) and l.stream = d.stream and l.pos = d.pos;
  update tallyman.claims c
     set positions = array(select p from unnest(c.positions) p
                           except
                           select d.pos from unnest(p_tokens, p_positions) as d (token, pos) where d.token = c.token)
   where c.token = any (v_held);
  delete from tallyman.claims c where c.token = any (v_held) and cardinality(c.positions) = 0;
  perform tallyman.free_positions(array_agg(d.target), array_agg(d.pos))
     from unnest(p_tokens, p_positions, v_targets) as d (token, pos, target) where d.token = any (v_held);
end $$;
