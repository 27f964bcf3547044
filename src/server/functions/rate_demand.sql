-- Tells how often this process was asked with each of these keys since it told last, and answers which part of that key's
-- limit it may grant: its part of what all processes were asked.
--
-- A process that has told nothing for three seconds has no part.
create or replace function tallyman_server.share_rates(p_process text, p_keys text[], p_requests double precision[])
returns table (key_id text, share double precision)
language plpgsql as $$
#variable_conflict use_column
begin
  delete from tallyman_server.rate_demand d where d.at < clock_timestamp() - interval '1 minute' and d.process <> p_process;
  insert into tallyman_server.rate_demand (key_id, process, requests)
  select u.key_id, p_process, u.requests from unnest(p_keys, p_requests) as u (key_id, requests) order by u.key_id
  on conflict (key_id, process) do update set requests = excluded.requests, at = excluded.at;
  return query
  select u.key_id, u.requests / greatest(u.requests, sum(d.requests))
    from unnest(p_keys, p_requests) as u (key_id, requests)
    join tallyman_server.rate_demand d on d.key_id = u.key_id and d.at > clock_timestamp() - interval '3 seconds'
   group by u.key_id, u.requests;
end $$;
