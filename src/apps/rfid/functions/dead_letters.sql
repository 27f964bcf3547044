-- Tells of a dead letter which read it is about.
create or replace function rfid.name_dead_letter() returns trigger
language plpgsql as $$
begin
  if new.kind = 'rfid.process-read' then
    new.entity_type := 'tag_read';
    new.entity_id := left(coalesce(
      new.payload ->> 'zbTagReadId',
      concat_ws('|', new.payload ->> 'deviceId', new.payload ->> 'epc', new.payload ->> 'eventTimestamp')), 512);
  elsif new.kind = 'rfid.reconcile-camera-read' then
    new.entity_type := 'camera_read';
    new.entity_id := left(coalesce(
      new.payload ->> 'cameraReadId',
      concat_ws('|', new.payload ->> 'deviceId', new.payload ->> 'oblpn', new.payload ->> 'eventTimestamp')), 512);
  end if;
  return new;
end $$;

select tallyman.on_change('dead_letter_rows', 'rfid.name_dead_letter()');
