-- API keys and the audit log.
create schema tallyman_server;

create table tallyman_server.tenants (
  id text primary key check (id ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
  name text not null,
  created_at timestamptz not null default now()
);
insert into tallyman_server.tenants (id, name) values ('default', 'Default');

-- The secret part of a key is shown once and never stored: the row has its HMAC under a pepper that is not in the database.
create table tallyman_server.api_keys (
  id text primary key,
  tenant_id text not null references tallyman_server.tenants,
  name text not null,
  role text not null check (role in ('admin', 'operator', 'auditor', 'producer')),
  hash bytea not null,
  created_at timestamptz not null default now(),
  expires_at timestamptz,
  revoked_at timestamptz,
  last_used_at timestamptz
);
create index api_keys_of_tenant on tallyman_server.api_keys (tenant_id, id);

create table tallyman_server.audit_events (
  id bigint generated always as identity primary key,
  tenant_id text not null,
  at timestamptz not null default clock_timestamp(),
  -- `key:<id>`, `cli`, or `anonymous`.
  actor text not null,
  -- `jobs.cancel`, `keys.create` ...
  action text not null,
  resource text,
  outcome text not null check (outcome in ('done', 'refused', 'failed')),
  status integer not null,
  code text,
  correlation_id text,
  address text
);
create index audit_events_of_tenant on tallyman_server.audit_events (tenant_id, id);

-- The answer to a write, for as long as the caller may repeat the request. Written in the transaction of the write: both
-- are committed, or neither is.
create table tallyman_server.idempotency_keys (
  tenant_id text not null,
  key text not null check (octet_length(key) between 1 and 255),
  digest bytea not null,
  status integer not null,
  body text not null,
  created_at timestamptz not null default now(),
  primary key (tenant_id, key)
);
create index idempotency_keys_by_age on tallyman_server.idempotency_keys (created_at);

select tallyman.isolate('tallyman_server.api_keys');
select tallyman.isolate('tallyman_server.audit_events');
select tallyman.isolate('tallyman_server.idempotency_keys');
