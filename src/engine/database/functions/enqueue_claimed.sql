-- Enqueues jobs and claims them for an idle worker, in one commit: the worker has the jobs already and need not ask for
-- them. Returns null, and writes nothing, where another claim has the turn, where
-- other work comes first, and where the queue is paused or has limits.
--
-- Otherwise the claim's token, the stream, the time of the enqueue in microseconds since 1970, and the ids. As one array:
-- for one row, telling the client of its columns costs more than the row.
--
-- The stream stays locked until the commit is on disk, and every other claim of it waits until then: this is for workers
-- that have nothing to do.
--
-- One statement, and no SET of its own: on an idle machine either saves a twentieth of the whole. The session has to
-- have enable_seqscan off (Database.keepHotConnection): a queue's table is empty at one ANALYZE and full at the next.
create or replace function tallyman.enqueue_claimed(
  p_queue text, p_priority smallint, p_kind text, p_max_attempts smallint, p_tenant text, p_correlation text,
  p_trace text, p_payloads json, p_worker text, p_lease_ms integer, p_stale_ms integer
) returns bigint[]
language plpgsql as $$
declare
  v_stream integer;
  v_first_token bigint;
  v_token bigint;
  v_ids bigint[];
begin
  -- A job that commits between this check and the lock is not seen here. A late turn finds it, as every late commit.
  -- min(), not exists(): as a join this could be planned as a walk along every waiting job of every stream.
  with stream as (
    select s.id, s.first_token
      from tallyman.streams s
     where s.queue = p_queue and s.priority = p_priority and s.variant = ''
       and exists (select 1 from tallyman.queues q
                    where q.name = p_queue and q.paused_at is null and q.max_running is null and q.rate_per_second is null)
       and (select min(j.pos) from tallyman.jobs j where j.stream = s.id and j.lane is null and j.pos >= s.cursor) is null
       and (select min(l.pos) from tallyman.lanes l where l.stream = s.id and l.pos >= s.cursor) is null
       for update of s skip locked
  ), added as (
    -- The lock has taken a transaction id, as it must be before a position is drawn.
    insert into tallyman.jobs (id, pos, stream, max_attempts, kind, tenant_id, payload, correlation_id, trace)
    select i.n, i.n, i.stream, p_max_attempts, p_kind, p_tenant, i.payload, p_correlation, p_trace
      from (select nextval('tallyman.positions') as n, s.id as stream, e.payload
              from stream s, json_array_elements(p_payloads) as e (payload)) i
    returning id
  ), claim as (
    -- The token, too, is drawn under the lock: a claim below first_token, which others move under it, would be overlooked.
    insert into tallyman.claims (token, worker, stream, expires_at, stale_at, positions, max_pos)
    select nextval('tallyman.tokens'), p_worker, s.id, clock_timestamp() + p_lease_ms * interval '1 millisecond',
           clock_timestamp() + p_stale_ms * interval '1 millisecond', a.ids, a.last
      from stream s, (select array_agg(id) as ids, max(id) as last from added) a
    returning token, stream, positions, max_pos
  ), moved as (
    update tallyman.streams s set cursor = greatest(s.cursor, c.max_pos + 1) from claim c where s.id = c.stream
  )
  select s.id, s.first_token, c.token, c.positions into v_stream, v_first_token, v_token, v_ids from stream s, claim c;
  if v_stream is null then
    return null;
  end if;
  -- Where all claims are made this way, no other function moves it. To look each time would cost more than the claim.
  if v_token > v_first_token + 100 then
    update tallyman.streams s
       set first_token = coalesce((select min(c.token) from tallyman.claims c
                                    where c.stream = v_stream and c.token >= v_first_token), v_token)
     where s.id = v_stream;
  end if;
  return array[v_token, v_stream, (extract(epoch from now()) * 1000000)::bigint] || v_ids;
end $$;
