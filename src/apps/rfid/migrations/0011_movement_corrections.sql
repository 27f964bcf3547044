-- What was told of movements and is not so: a late read withdrew them, or changed where they began. Partners who have been told
-- (EPCIS) are told again. Ids are those of movements, so that both are one list in the order in which they were recorded.

create table rfid.movement_corrections (
  id bigint primary key default nextval('rfid.movement_ids'),
  movement_id bigint not null,
  -- What was told last: the movement, or the correction before this one.
  corrects bigint not null,
  basket_id bigint not null,
  was_from_location_id bigint,
  -- Null, too, if it is withdrawn.
  from_location_id bigint,
  is_withdrawn boolean not null,
  to_location_id bigint not null,
  event_timestamp timestamptz not null,
  -- When the movement was recorded.
  recorded_at timestamptz not null,
  created_at timestamptz not null default now(),
  device_id text not null,
  tenant_id text collate "C" not null
);
create index movement_corrections_by_movement on rfid.movement_corrections (movement_id, id);
select tallyman.isolate('rfid.movement_corrections');
