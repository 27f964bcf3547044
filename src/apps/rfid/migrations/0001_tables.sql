-- Baskets, where they went, and which reads have been counted.
--
--   baskets                one row for each tag of a tenant: where it is, when it was last seen, how it last moved
--   movements              one row each time a basket was seen at another place than before
--   tag_read_processings   one row for each processed read: its keys keep the same read from having an effect twice
--
-- There are no foreign keys among them: only functions/process.sql writes rows, and it holds the basket's lock; checking
-- every row would cost as much as writing it. Locations and devices are those of `iot`, by id and by serial.

create schema rfid;

-- Every batch that sees a basket updates it. No index covers the updated columns and pages have room: updates stay on the page.
create table rfid.baskets (
  id bigint generated always as identity primary key,
  location_id bigint,
  -- Null only inside the transaction that creates it.
  last_seen_at timestamptz,
  first_seen_at timestamptz,
  -- Its last movement, stored here so that the next decision reads no other table.
  movement_id bigint,
  moved_from bigint,
  moved_to bigint,
  moved_at timestamptz,
  created_at timestamptz not null default now(),
  last_device_id text,
  tenant_id text collate "C" not null,
  epc_hex text collate "C" not null check (octet_length(epc_hex) = 24),
  epc_uri text not null
) with (fillfactor = 70);
create unique index baskets_by_epc on rfid.baskets (tenant_id, epc_hex);

create sequence rfid.movement_ids;

create table rfid.movements (
  id bigint primary key default nextval('rfid.movement_ids'),
  basket_id bigint not null,
  -- Null: the first sighting.
  from_location_id bigint,
  to_location_id bigint not null,
  event_timestamp timestamptz not null,
  window_start timestamptz not null,
  created_at timestamptz not null default now(),
  device_id text not null,
  tenant_id text collate "C" not null
);
-- Also serves a basket's history.
create unique index movements_once on rfid.movements
  (basket_id, window_start, to_location_id, from_location_id, tenant_id) nulls not distinct;

create table rfid.tag_read_processings (
  id bigint generated always as identity primary key,
  zb_tag_read_id bigint,
  processed_at timestamptz not null default now(),
  created_at timestamptz not null default now(),
  -- Null: it had none that could be read.
  event_timestamp timestamptz,
  basket_id bigint,
  movement_id bigint,
  is_new_basket boolean not null default false,
  -- SHA-256 as bytes; base64, as users see it, would be a third longer in the table and in the index.
  content_hash bytea not null check (octet_length(content_hash) = 32),
  processor_type text not null check (processor_type in ('MQTT', 'Replay')),
  epc_hex text not null,
  device_id text not null,
  skip_reason text,
  error_message text,
  tenant_id text collate "C" not null
);
-- A failed read takes no key. The hash comes first because it is selective; the tenant hardly is.
create unique index processings_by_content on rfid.tag_read_processings (content_hash, tenant_id)
  where error_message is null;
create unique index processings_by_tag_read on rfid.tag_read_processings (tenant_id, zb_tag_read_id)
  where error_message is null and zb_tag_read_id is not null;

select tallyman.isolate('rfid.baskets');
select tallyman.isolate('rfid.movements');
select tallyman.isolate('rfid.tag_read_processings');
