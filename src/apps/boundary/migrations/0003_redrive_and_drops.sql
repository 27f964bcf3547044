-- How facts leave quarantine, what a full stream has dropped, and what left without a way back.
--
--   quarantine   resolution, resolved_by, resolved_at: which later fact stands for this one; null while it is open
--   drops        offsets that a source has dropped before they crossed, with the chain hash at the last of them: the receiver
--                fills the places with gap records and goes on from there
--   exports      ranges that left in one-way mode, with the chain hash at the end: there are no receipts to tell

alter table boundary.quarantine
  add column resolution text check (resolution in ('redriven', 'dropped')),
  add column resolved_by bigint,
  add column resolved_at timestamptz;

-- Whether an object is still needed for a redrive.
create index quarantine_open on boundary.quarantine (tenant_id, buffer, from_zone, message_id) where resolution is null;

create table boundary.drops (
  tenant_id text collate "C" not null,
  buffer boundary.buffer not null,
  from_zone text collate "C" not null,
  to_zone text collate "C" not null,
  epoch uuid not null,
  from_offset bigint not null,
  to_offset bigint not null check (to_offset >= from_offset),
  chain text collate "C" not null,
  dropped_at timestamptz not null default now(),
  primary key (tenant_id, buffer, from_zone, to_zone, to_offset, epoch)
);

select tallyman.isolate('boundary.drops');

create table boundary.exports (
  tenant_id text collate "C" not null,
  buffer boundary.buffer not null,
  from_zone text collate "C" not null,
  to_zone text collate "C" not null,
  epoch uuid not null,
  from_offset bigint not null,
  to_offset bigint not null check (to_offset >= from_offset),
  chain text collate "C" not null,
  exported_at timestamptz not null default now(),
  primary key (tenant_id, buffer, from_zone, to_zone, to_offset, epoch)
);

select tallyman.isolate('boundary.exports');
