-- The boundary: facts that cross from one zone into another. The facts are in the engine's log, in two kinds of streams:
--
--   store     facts appended in this zone, on their way to another one
--   forward   facts that came from another zone, at the same offsets
--
--   streams      what the log does not know of a stream: that it is full; for `forward`, how far the source was followed
--   consumers    cursors
--   receipts     what a receiver has signed, kept by both zones
--   quarantine   facts that the receiver could not take, kept by both zones
--
-- Lock order: boundary.streams, then the log's stream.

create schema boundary;

create domain boundary.buffer as text check (value in ('store', 'forward'));

create table boundary.streams (
  tenant_id text collate "C" not null,
  buffer boundary.buffer not null,
  from_zone text collate "C" not null,
  to_zone text collate "C" not null,
  -- Since when appends are refused because the stream has reached its limit.
  full_since timestamptz,
  -- Of `forward`: the source's epoch, the highest offset that was taken over, and the source's chain hash there.
  source_epoch uuid,
  source_offset bigint,
  source_chain text collate "C",
  primary key (tenant_id, buffer, from_zone, to_zone)
);

create table boundary.consumers (
  tenant_id text collate "C" not null,
  buffer boundary.buffer not null,
  from_zone text collate "C" not null,
  to_zone text collate "C" not null,
  name text collate "C" not null check (octet_length(name) between 1 and 256),
  -- Everything up to here is confirmed. It never decreases, but for a seek.
  cursor bigint not null check (cursor >= 0),
  -- The highest offset that the instance was given: it can confirm no more.
  fetched bigint not null check (fetched >= cursor),
  instance text not null,
  -- Grows with each takeover and seek.
  generation integer not null default 1,
  leased_until timestamptz not null,
  created_at timestamptz not null default now(),
  confirmed_at timestamptz,
  primary key (tenant_id, buffer, from_zone, to_zone, name)
) with (fillfactor = 70);

create table boundary.receipts (
  tenant_id text collate "C" not null,
  buffer boundary.buffer not null,
  from_zone text collate "C" not null,
  to_zone text collate "C" not null,
  epoch uuid not null,
  from_offset bigint not null,
  to_offset bigint not null check (to_offset >= from_offset),
  chain text collate "C" not null,
  received_at bigint not null,
  key_id text not null,
  signature bytea not null,
  primary key (tenant_id, buffer, from_zone, to_zone, to_offset, epoch)
);

create table boundary.quarantine (
  tenant_id text collate "C" not null,
  buffer boundary.buffer not null,
  from_zone text collate "C" not null,
  to_zone text collate "C" not null,
  epoch uuid not null,
  "offset" bigint not null,
  message_id text collate "C" not null,
  reason text not null,
  message text not null,
  record text not null,
  quarantined_at timestamptz not null default now(),
  primary key (tenant_id, buffer, from_zone, to_zone, "offset", epoch)
);

select tallyman.isolate('boundary.streams');
select tallyman.isolate('boundary.consumers');
select tallyman.isolate('boundary.receipts');
select tallyman.isolate('boundary.quarantine');
