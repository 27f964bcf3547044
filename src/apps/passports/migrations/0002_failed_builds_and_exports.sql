-- Snapshots that cannot be built say why, and can be built again. Exports are made by jobs, once, and kept.
--
--   snapshots.error   why it cannot be built: readers see FAILED
--   snapshots.next    what is to be issued from it, so that building it again goes on as the first time would have
--   exports           a version as one file for one reader: requested, made by a job, never changed after that
--
-- Lock order: exports after versions.

alter table passports.snapshots
  -- {code, message, problems}
  add column error jsonb,
  -- Canonical JSON, or null if nothing is to be issued.
  add column next text,
  add check (error is null or state = 'BUILDING');

create table passports.exports (
  id uuid primary key,
  tenant_id text collate "C" not null,
  version_id uuid not null references passports.versions (id),
  format text collate "C" not null,
  reader text collate "C" not null check (reader in ('public', 'legitimate_interest', 'authority', 'owner')),
  -- Canonical JSON: format, reader and everything that can change later, as it was when the export was requested.
  input text not null,
  input_hash text collate "C" not null,
  sha256 text collate "C",
  size integer,
  bytes bytea,
  -- Why it cannot be made: {code, message, problems}.
  error jsonb,
  created_at timestamptz not null default now(),
  made_at timestamptz,
  -- The same request again is the same export.
  unique (tenant_id, version_id, input_hash),
  check ((made_at is null) = (bytes is null) and (made_at is null) = (sha256 is null) and (made_at is null) = (size is null)),
  check (error is null or made_at is null)
);

select tallyman.isolate('passports.exports');
