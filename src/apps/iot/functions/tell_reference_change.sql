-- Notifies programs that keep devices and locations in memory.
create or replace function iot.tell_reference_change() returns trigger
language plpgsql as $$
begin
  perform pg_notify('iot_reference', tg_table_name);
  return null;
end $$;

create or replace trigger tell_change after insert or update or delete on iot.devices
  for each statement execute function iot.tell_reference_change();
create or replace trigger tell_change after insert or update or delete on iot.locations
  for each statement execute function iot.tell_reference_change();
