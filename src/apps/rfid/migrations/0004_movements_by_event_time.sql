-- Movements follow the event time of reads, whatever the order in which they arrive (decision 20).

-- Where the reader stood when the read was processed; null in rows of version 0.2, whose reader tells by its present place.
alter table rfid.tag_read_processings add column location_id bigint;
-- True for a read at a return door; otherwise null.
alter table rfid.tag_read_processings add column at_return_door boolean;

-- A basket's reads around a late one.
create index processings_of_basket on rfid.tag_read_processings (basket_id, event_timestamp)
  where error_message is null and basket_id is not null;

-- Repetitions within the window: how many, and the time of the last one.
alter table rfid.movements add column repeats integer not null default 0;
alter table rfid.movements add column last_at timestamptz;

-- Where the basket counts as being, while it has not been long enough where it was last seen (`rfid.minimumStayMs`). Null: there.
alter table rfid.baskets add column place_id bigint;

-- The latest event time among a tenant's deleted reads. A late read from before cannot be put in its place: its neighbours are gone.
create table rfid.read_horizons (
  tenant_id text collate "C" primary key,
  forgotten_to timestamptz not null
);
select tallyman.isolate('rfid.read_horizons');
-- Version 0.2 noted no horizon. What it deleted was processed before the oldest row that is left, and ids start at 1.
insert into rfid.read_horizons (tenant_id, forgotten_to)
select t.tenant_id, o.processed_at
  from (select p.id, p.processed_at from rfid.tag_read_processings p order by p.id limit 1) o,
       (select distinct b.tenant_id from rfid.baskets b) t
 where o.id > 1;

-- Columns of rows to write, as arrays of one length; null stands for an array of nulls. The arguments of rfid.save.
create type rfid.new_movements as (
  tenants text[], baskets bigint[], epcs text[], from_locations bigint[], to_locations bigint[], at timestamptz[],
  windows timestamptz[], devices text[], repeats integer[], last_at timestamptz[],
  -- `new`: tell of the basket, too. `late`: told as a correction, by the caller.
  kinds text[]
);
create type rfid.seen_baskets as (
  ids bigint[], locations bigint[], first_at timestamptz[], last_at timestamptz[], devices text[],
  -- The number, from 1, of the basket's last new movement; null: none.
  moves integer[]
);
create type rfid.new_reads as (
  tenants text[], tag_reads bigint[], hashes bytea[], processors text[], at timestamptz[], baskets bigint[],
  -- A movement of this call by its number, or an earlier one by its id.
  moves integer[], earlier_moves bigint[],
  epcs text[], devices text[], locations bigint[], at_return_door boolean[], is_new boolean[], skips text[]
);

-- A return that arrives late may have closed a line earlier than the one that did.
create index shipment_lines_by_basket on rfid.shipment_lines (basket_id) where basket_id is not null;
