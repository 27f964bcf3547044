-- Foreign tags: one row, and one dead letter, for each tag at each device, however often it is read.

create table rfid.refused_tags (
  id bigint generated always as identity,
  tenant_id text collate "C" not null,
  device_id text not null,
  epc_hex text not null,
  reads bigint not null,
  first_at timestamptz not null default now(),
  last_at timestamptz not null default now(),
  error_message text not null,
  -- Read by MQTT, which stores what a reader sent and counts it in one commit: a replay of that counts nothing.
  is_live boolean not null,
  primary key (tenant_id, device_id, epc_hex)
);
create index refused_tags_newest on rfid.refused_tags (tenant_id, id);
select tallyman.isolate('rfid.refused_tags');

-- With rfid.tags.schemes any, tags of other lengths have baskets, too.
alter table rfid.baskets drop constraint baskets_epc_hex_check;
alter table rfid.baskets add constraint baskets_epc_hex_check check (octet_length(epc_hex) between 1 and 256);
