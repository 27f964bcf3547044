-- What delivering needs of the engine and of the breaker. docs/decisions/0006-webhook-breaker.md says why.

-- The one delivery that goes through an open breaker once its time is past. Answers whether the caller is it.
create or replace function tallyman_webhooks.take_probe(p_endpoint bigint) returns boolean
language sql as $$
  with taken as (
    update tallyman_webhooks.endpoints e
       set probing_until = clock_timestamp() + (e.timeout_ms + 5000) * interval '1 millisecond'
     where e.id = p_endpoint and e.open_until <= clock_timestamp()
       and (e.probing_until is null or e.probing_until <= clock_timestamp())
    returning 1
  )
  select exists (select 1 from taken)
$$;

-- After enough failures in a row the breaker opens, each time for twice as long. Failures of deliveries that were under
-- way when it opened do not prolong it; only a failed probe does.
create or replace function tallyman_webhooks.count_failure(
  p_endpoint bigint, p_probe boolean, p_threshold integer, p_open_ms double precision, p_max_open_ms double precision
) returns void
language sql as $$
  update tallyman_webhooks.endpoints e
     set failures = e.failures + 1,
         opened = e.opened + case when d.opens then 1 else 0 end,
         open_until = case when d.opens
           then clock_timestamp() + least(p_max_open_ms, p_open_ms * 2 ^ least(e.opened, 30)) * interval '1 millisecond'
           else e.open_until end,
         probing_until = case when p_probe then null else e.probing_until end
    from (select l.id, p_probe or (l.open_until is null and l.failures + 1 >= p_threshold) as opens
            from tallyman_webhooks.endpoints l where l.id = p_endpoint for update) d
   where e.id = d.id
$$;

-- A success closes it. Writes nothing where all was well before.
create or replace function tallyman_webhooks.count_success(p_endpoint bigint) returns void
language sql as $$
  update tallyman_webhooks.endpoints e
     set failures = 0, opened = 0, open_until = null, probing_until = null
   where e.id = p_endpoint and (e.failures > 0 or e.open_until is not null)
$$;

-- Events that are old and of which nothing is under way, with their deliveries. Dead letters may be redriven: theirs stay.
create or replace function tallyman_webhooks.purge(p_keep interval, p_limit integer) returns integer
language sql as $$
  with old as (
    select v.tenant_id, v.id from tallyman_webhooks.events v
     where v.created_at < now() - p_keep
       and not exists (select 1 from tallyman_webhooks.dispatches d
                        where d.tenant_id = v.tenant_id and d.event_id = v.id
                          and (tallyman.job_exists(d.job_id) or tallyman.dead_letter_exists(d.job_id)))
     order by v.created_at limit p_limit for update skip locked
  ), gone as (
    delete from tallyman_webhooks.events v using old o where v.tenant_id = o.tenant_id and v.id = o.id returning 1
  )
  select count(*)::integer from gone
$$;
