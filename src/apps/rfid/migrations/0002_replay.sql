-- Reads that failed in a replay before, so that it does not record them twice. Holds only failures.
create index processings_failed_by_tag_read on rfid.tag_read_processings (tenant_id, zb_tag_read_id)
  where error_message is not null and zb_tag_read_id is not null;
