-- The tables of webhooks. Events are those of `tallyman_events`, to which this part listens.
--
--   endpoints            who subscribes to which events, and the state of the circuit breaker
--   endpoint_secrets     what its deliveries are signed with; two of them for a time after a rotation
--   dispatches           one row for each event and endpoint it is sent to; its id is the delivery id
--   webhook_deliveries   one row an attempt

create schema tallyman_webhooks;

create table tallyman_webhooks.endpoints (
  id bigint generated always as identity primary key,
  tenant_id text not null,
  url text not null,
  description text not null default '',
  -- '*' is everything, 'job.*' everything that begins with "job.".
  event_types text[] not null check (cardinality(event_types) > 0),
  -- A lane for each aggregate: its events arrive one after another, in the order of their commits.
  ordered boolean not null default false,
  timeout_ms integer not null default 30000 check (timeout_ms between 100 and 300000),
  max_attempts smallint not null default 5 check (max_attempts between 1 and 100),
  -- Seconds to wait after attempt 1, 2, ...; the last one repeats. Null: 2, 4, 8, ... seconds.
  retry_delays integer[],
  disabled_at timestamptz,
  disabled_reason text,
  created_at timestamptz not null default now(),
  -- Gets events with greater ids: those that were written since it was made, or enabled again.
  since bigint not null default tallyman_events.position(),
  -- The circuit breaker, stored here so that the fleet shares it. failures: in a row. opened: times in a row it opened without a success.
  failures integer not null default 0,
  opened integer not null default 0,
  open_until timestamptz,
  -- Set while one delivery probes the receiver; it expires by itself if the process dies.
  probing_until timestamptz
) with (fillfactor = 50);
create index endpoints_of_tenant on tallyman_webhooks.endpoints (tenant_id, id);

create table tallyman_webhooks.endpoint_secrets (
  id bigint generated always as identity primary key,
  endpoint_id bigint not null references tallyman_webhooks.endpoints (id) on delete cascade,
  tenant_id text not null,
  sealed text not null,
  created_at timestamptz not null default now(),
  -- Set by a rotation: until then this secret signs deliveries, too.
  expires_at timestamptz
);
create index endpoint_secrets_of_endpoint on tallyman_webhooks.endpoint_secrets (endpoint_id, id);

create table tallyman_webhooks.dispatches (
  id uuid primary key default gen_random_uuid(),
  tenant_id text not null,
  event_id bigint not null references tallyman_events.events (id) on delete cascade,
  endpoint_id bigint not null references tallyman_webhooks.endpoints (id) on delete cascade,
  job_id bigint not null,
  -- A user requested another delivery.
  manual boolean not null default false,
  created_at timestamptz not null default now(),
  succeeded_at timestamptz
);
create index dispatches_of_event on tallyman_webhooks.dispatches (event_id, endpoint_id);
create index dispatches_of_endpoint on tallyman_webhooks.dispatches (endpoint_id);

create table tallyman_webhooks.webhook_deliveries (
  id bigint generated always as identity primary key,
  tenant_id text not null,
  delivery_id uuid not null references tallyman_webhooks.dispatches (id) on delete cascade,
  event_id bigint not null,
  endpoint_id bigint not null,
  attempt integer not null,
  status text not null check (status in ('SUCCEEDED', 'FAILED')),
  http_status smallint,
  response_headers jsonb,
  -- The first 64 KiB.
  response_body text,
  error_code text,
  error text,
  duration_ms integer not null,
  attempted_at timestamptz not null
);
create index webhook_deliveries_of_delivery on tallyman_webhooks.webhook_deliveries (delivery_id, id);
create index webhook_deliveries_of_endpoint on tallyman_webhooks.webhook_deliveries (endpoint_id, id);

select tallyman.isolate('tallyman_webhooks.endpoints');
select tallyman.isolate('tallyman_webhooks.endpoint_secrets');
select tallyman.isolate('tallyman_webhooks.dispatches');
select tallyman.isolate('tallyman_webhooks.webhook_deliveries');
