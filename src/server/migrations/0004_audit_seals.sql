-- The audit as a chain: each seal has a keyed hash over the events of a range of ids and over the seal before it. The key is
-- not in the database, so who can write to the tables cannot write a seal. src/server/audit/seals.ts makes them.
create table tallyman_server.audit_seals (
  seq bigint primary key check (seq > 0),
  sealed_at timestamptz not null,
  -- Ids above that of the seal before, up to this one.
  last_id bigint not null,
  events integer not null check (events > 0),
  -- The master secret that the hashes are keyed with.
  key_id text not null,
  -- Over the events alone.
  digest bytea not null,
  -- Over all of the above, and over the hash of the seal before.
  hash bytea not null,
  -- A keyed hash that says that retention has deleted the events. The seal stays: later ones build on it.
  pruned bytea
);

-- How often the same was refused to the same address within a minute; see AuditTrail.
alter table tallyman_server.audit_events add column times integer not null default 1 check (times > 0);
