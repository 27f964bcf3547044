-- The breaker of an endpoint. docs/decisions/0006-webhook-breaker.md says why.

-- After the wait, one delivery may probe through an open breaker. Returns whether the caller is that one.
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

-- Opens the breaker after enough failures in a row, each time for twice as long. Failures of deliveries that were running
-- when it opened do not prolong it; only a failed probe does. The lock leaves room for the fan-out's.
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
            from tallyman_webhooks.endpoints l where l.id = p_endpoint for no key update) d
   where e.id = d.id
$$;

-- A success closes the breaker. Writes nothing if it was closed and had no failures.
create or replace function tallyman_webhooks.count_success(p_endpoint bigint) returns void
language sql as $$
  update tallyman_webhooks.endpoints e
     set failures = 0, opened = 0, open_until = null, probing_until = null
   where e.id = p_endpoint and (e.failures > 0 or e.open_until is not null)
$$;
