-- More options of endpoints, and deliveries that had to wait before they could be made.

alter table tallyman_webhooks.endpoints
  -- Conditions on the payload, all of which must hold; see functions/filter.sql. Null: none.
  add column filter jsonb,
  -- Headers of the user's own: their names, and all of them sealed, since values may be credentials.
  add column header_names text[] not null default '{}',
  add column headers_sealed text,
  -- Null: enabled, or disabled by an older release.
  add column disabled_by text check (disabled_by in ('person', 'receiver'));

-- The key of X-BPC-Signature: the secret's text, or its decoded base64, as older releases signed. An older secret keeps what
-- its receiver checks until it is rotated.
alter table tallyman_webhooks.endpoint_secrets
  add column x_bpc_key text not null default 'decoded' check (x_bpc_key in ('text', 'decoded'));

-- Ed25519: the endpoints that have one sign with it, too.
create table tallyman_webhooks.endpoint_keys (
  id bigint generated always as identity primary key,
  endpoint_id bigint not null references tallyman_webhooks.endpoints (id) on delete cascade,
  tenant_id text not null,
  public_key text not null,
  sealed text not null,
  created_at timestamptz not null default now(),
  -- Set by a rotation: until then this key signs deliveries, too.
  expires_at timestamptz
);
create index endpoint_keys_of_endpoint on tallyman_webhooks.endpoint_keys (endpoint_id, id);
select tallyman.isolate('tallyman_webhooks.endpoint_keys');

-- Deliveries that the fan-out left out because another open transaction holds their lane or their endpoint. The endpoint is
-- no foreign key: checking it would wait for just that transaction.
create table tallyman_webhooks.held_back (
  endpoint_id bigint not null,
  event_id bigint not null references tallyman_events.events (id) on delete cascade,
  tenant_id text not null,
  lane text,
  since timestamptz not null default now(),
  primary key (endpoint_id, event_id)
);
create index held_back_of_lane on tallyman_webhooks.held_back (endpoint_id, lane) where lane is not null;
create index held_back_of_event on tallyman_webhooks.held_back (event_id);
select tallyman.isolate('tallyman_webhooks.held_back');

-- Lists of deliveries go by their job's id, newest first; those that are not delivered are few.
create index dispatches_of_tenant on tallyman_webhooks.dispatches (tenant_id, job_id);
create index dispatches_undelivered on tallyman_webhooks.dispatches (tenant_id, job_id) where succeeded_at is null;

-- Made by the first enqueue, the queue would keep all others waiting until that one commits.
select tallyman.prepare_kind('webhook.deliver');
