-- Ids that facts had in their zone before it was restored from a backup, and the facts crossed under other ids. Such an id can come again:
-- the same backup is restored once more, or the producer sends the fact again. Kept forever, as message ids are.
create table boundary.former_ids (
  tenant_id text collate "C" not null,
  from_zone text collate "C" not null,
  message_id text collate "C" not null,
  -- Of the content that crossed.
  digest text collate "C" not null,
  primary key (tenant_id, from_zone, message_id)
);

select tallyman.isolate('boundary.former_ids');
