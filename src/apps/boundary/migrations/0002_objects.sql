-- Objects: names for bytes that lie in files (or another blob storage) under their digest.
--
--   objects   (tenant, bucket, key) to digest; written once the bytes are durable, never changed
--   holds     which fact names an object; written before the fact is appended
--
-- An object without holds is an orphan after a grace time. The foreign key decides between a hold and the collection: the
-- one locks the object's row, the other deletes it.

create table boundary.objects (
  tenant_id text collate "C" not null,
  bucket text collate "C" not null,
  key text collate "C" not null,
  digest text collate "C" not null check (digest ~ '^sha256:[0-9a-f]{64}$'),
  size bigint not null check (size >= 0),
  media_type text,
  stored_at timestamptz not null default now(),
  primary key (tenant_id, bucket, key)
);
-- Whether bytes have a name; the same bytes may have many, of several tenants.
create index objects_digest on boundary.objects (digest);
create index objects_stored_at on boundary.objects (stored_at);

create table boundary.holds (
  tenant_id text collate "C" not null,
  bucket text collate "C" not null,
  key text collate "C" not null,
  buffer boundary.buffer not null,
  from_zone text collate "C" not null,
  message_id text collate "C" not null,
  held_at timestamptz not null default now(),
  primary key (tenant_id, bucket, key, buffer, from_zone, message_id),
  foreign key (tenant_id, bucket, key) references boundary.objects (tenant_id, bucket, key)
);

select tallyman.isolate('boundary.objects');
select tallyman.isolate('boundary.holds');
