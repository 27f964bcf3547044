-- What devices say about themselves, and how they are named outside of this plant.

-- How others know the place: its GLN with an extension, such as urn:epc:id:sgln:0614141.00777.0. Null: it has none.
alter table iot.locations add column sgln text check (octet_length(sgln) between 1 and 256);

-- One row for each device that was heard of, registered or not. Written now and then, not with every read.
create table iot.device_states (
  tenant_id text not null,
  serial text not null,
  -- By our clock: its last message of any kind, its last read, its last heartbeat.
  last_seen_at timestamptz not null,
  last_read_at timestamptz,
  last_heartbeat_at timestamptz,
  -- The last known value of each thing it reported, such as {"antenna 1": "connected", "gpi 2": "HIGH"}; by its own clock.
  state jsonb not null default '{}',
  state_at timestamptz,
  errors bigint not null default 0,
  warnings bigint not null default 0,
  last_error text,
  last_error_at timestamptz,
  -- Its clock minus ours, as of the last messages; positive: it is ahead.
  clock_skew_ms bigint,
  clock_measured_at timestamptz,
  -- Reads of tags that the configuration ignores.
  ignored_reads bigint not null default 0,
  primary key (tenant_id, serial)
);

-- What they reported besides heartbeats, each once, however often the broker delivers it.
create table iot.device_events (
  id bigint generated always as identity primary key,
  occurred_at timestamptz not null,
  received_at timestamptz not null default now(),
  tenant_id text not null,
  serial text not null,
  type text not null,
  level text not null check (level in ('info', 'warning', 'error')),
  summary text not null,
  data json,
  fingerprint bytea not null,
  unique (tenant_id, serial, occurred_at, fingerprint)
);
create index device_events_newest on iot.device_events (tenant_id, serial, id);

select tallyman.isolate('iot.device_states');
select tallyman.isolate('iot.device_events');
