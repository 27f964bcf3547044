create schema parcels;

create table parcels.parcels (
  id bigint generated always as identity primary key,
  tenant_id text not null,
  code text not null,
  weighed_at timestamptz,
  grams integer,
  unique (tenant_id, code)
);

select tallyman.isolate('parcels.parcels');
