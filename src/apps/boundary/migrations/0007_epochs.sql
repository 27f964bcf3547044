-- Epochs that were started after a restore from a backup, in the zone that sends: what a killed `zones new-epoch` goes on from, and
-- what the other zone must be told.
create table boundary.epochs (
  tenant_id text collate "C" not null,
  buffer boundary.buffer not null,
  from_zone text collate "C" not null,
  to_zone text collate "C" not null,
  epoch uuid not null,
  former_epoch uuid not null,
  -- How far the other zone has come in the former epoch.
  after_offset bigint not null,
  -- Facts of the former epoch behind this offset are appended again.
  confirmed_offset bigint not null,
  -- The last offset that does not belong to this epoch, and the chain hash that its first fact follows from.
  boundary_offset bigint not null check (boundary_offset >= after_offset),
  chain text collate "C" not null,
  started_at timestamptz not null default now(),
  primary key (tenant_id, buffer, from_zone, to_zone, epoch)
);

select tallyman.isolate('boundary.epochs');
