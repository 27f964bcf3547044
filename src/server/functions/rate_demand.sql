-- Tells how often this process was asked with each of these keys since it told last, and answers which part of that key's
-- limit it may grant: its part of what all processes were asked.
--
-- A process that has told nothing for three seconds has no part.
create or replace function tallyman_server.share_rates(p_process text, p_keys text[], p_requests double precision[])
returns table (key_id text, share double precision)
language plpgsql as $$
#variable_conflict use_column
begin
  -- Rows that another process writes or deletes just now are left to it: nobody waits here, so two cannot wait for each other.
  delete from tallyman_server.rate_demand d where (d.key_id, d.process) in (
    select o.key_id, o.process from tallyman_server.rate_demand o
     where o.at < clock_timestamp() - interval '1 minute' and o.process <> p_process for update skip locked);
  insert into tallyman_server.rate_demand (key_id, process, requests)
  select u.key_id, p_process, u.requests from unnest(p_keys, p_requests) as u (key_id, requests) order by u.key_id
  on conflict (key_id, process) do update set requests = excluded.requests, at = excluded.at;
  return query
  select u.key_id, u.requests / greatest(u.requests, sum(d.requests))
    from unnest(p_keys, p_requests) as u (key_id, requests)
    join tallyman_server.rate_demand d on d.key_id = u.key_id and d.at > clock_timestamp() - interval '3 seconds'
   group by u.key_id, u.requests;
end $$;
