-- Shipments that leave, and baskets that come back.
--
--   shipments        PLANNED -> LOADING -> SHIPPED, never back
--   shipment_lines   one for each outbound license plate (OBLPN): open, loaded (it has a basket), closed (that came back)
--
-- Locks are taken in the order shipment, basket, line.

-- When it came back; null again when it is loaded after that.
alter table rfid.baskets add column returned_at timestamptz;

create table rfid.shipments (
  id bigint generated always as identity primary key,
  tenant_id text collate "C" not null,
  number text not null check (octet_length(number) between 1 and 256),
  status text not null default 'PLANNED' check (status in ('PLANNED', 'LOADING', 'SHIPPED')),
  created_at timestamptz not null default now(),
  loading_at timestamptz,
  shipped_at timestamptz,
  unique (tenant_id, number)
);

create table rfid.shipment_lines (
  id bigint generated always as identity primary key,
  tenant_id text collate "C" not null,
  shipment_id bigint not null references rfid.shipments (id),
  oblpn text not null check (octet_length(oblpn) between 1 and 256),
  created_at timestamptz not null default now(),
  basket_id bigint,
  -- When a camera saw the plate at a door, and which.
  loaded_at timestamptz,
  loaded_by text,
  closed_at timestamptz,
  unique (tenant_id, oblpn),
  check ((basket_id is null) = (loaded_at is null)),
  check (closed_at is null or basket_id is not null)
);
create index shipment_lines_of on rfid.shipment_lines (shipment_id);
-- A basket can have one open line at a time.
create unique index shipment_lines_open on rfid.shipment_lines (basket_id)
  where closed_at is null and basket_id is not null;

-- Finds the baskets at a door around a time. Reads come nearly in order, so a block range of them is a range of time (BRIN); a
-- B-tree would cost every read what this costs one in thousands.
create index processings_by_time on rfid.tag_read_processings
  using brin (event_timestamp) with (pages_per_range = 32, autosummarize = on);

select tallyman.isolate('rfid.shipments');
select tallyman.isolate('rfid.shipment_lines');
