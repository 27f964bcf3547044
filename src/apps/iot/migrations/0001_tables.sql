-- Devices, and their messages as they came. Other apps decide what they mean.

create schema iot;

create table iot.locations (
  id bigint generated always as identity primary key,
  tenant_id text not null,
  name text not null check (octet_length(name) between 1 and 256),
  updated_at timestamptz not null default now(),
  unique (tenant_id, name)
);

create table iot.devices (
  id bigint generated always as identity primary key,
  tenant_id text not null,
  -- As in the topics it publishes on.
  serial text not null check (octet_length(serial) between 1 and 256),
  name text not null,
  -- Null: not mounted anywhere.
  location_id bigint references iot.locations (id),
  -- Such as 'dock-door', 'return-door', 'camera'.
  role text not null default 'reader',
  updated_at timestamptz not null default now(),
  unique (tenant_id, serial)
);
create index devices_at_location on iot.devices (location_id);

-- Append-only, with just the columns that a replay needs. A message that the broker sends twice is stored twice.
create table iot.tag_reads (
  id bigint generated always as identity primary key,
  event_timestamp timestamptz not null,
  received_at timestamptz not null default now(),
  event_number bigint,
  rssi real,
  antenna smallint,
  device_id text not null,
  epc_hex text not null,
  tenant_id text not null
);

create table iot.camera_reads (
  id bigint generated always as identity primary key,
  event_timestamp timestamptz not null,
  received_at timestamptz not null default now(),
  device_id text not null,
  oblpn text not null,
  tenant_id text not null
);

select tallyman.isolate('iot.locations');
select tallyman.isolate('iot.devices');
select tallyman.isolate('iot.tag_reads');
select tallyman.isolate('iot.camera_reads');
