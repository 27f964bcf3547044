-- What the processes of a node know together about their work, and an index of facts for people.
--
--   handoffs   how each hand-off gets on, written by the process that carries it and by the one that watches
--   subjects   facts by subject and message id; follows the logs, and is trimmed with them

create table boundary.handoffs (
  tenant_id text collate "C" not null,
  buffer boundary.buffer not null,
  from_zone text collate "C" not null,
  to_zone text collate "C" not null,
  -- Null where the other zone carries the stream.
  mode text check (mode in ('normal', 'autonomous', 'refused')),
  mode_since timestamptz,
  -- Why it is not normal.
  trouble text,
  -- Since when the other zone answers and facts wait, and the frontier does not move.
  stalled_since timestamptz,
  primary key (tenant_id, buffer, from_zone, to_zone)
);

create table boundary.subjects (
  tenant_id text collate "C" not null,
  subject text collate "C" not null,
  buffer boundary.buffer not null,
  from_zone text collate "C" not null,
  to_zone text collate "C" not null,
  "offset" bigint not null,
  message_id text collate "C" not null,
  predicate text not null,
  -- When it was appended to this log, by the clock of the database.
  appended_at timestamptz not null,
  primary key (tenant_id, buffer, from_zone, to_zone, "offset")
);
create index subjects_of on boundary.subjects (tenant_id, subject, appended_at);
create index subjects_message_id on boundary.subjects (tenant_id, message_id);
-- The time line of a fact asks for it by its id.
create index quarantine_message_id on boundary.quarantine (tenant_id, message_id);

-- Up to where `subjects` follows the log.
alter table boundary.streams add column indexed_offset bigint not null default 0;

select tallyman.isolate('boundary.handoffs');
select tallyman.isolate('boundary.subjects');
