-- Events that a rule should have made facts of, and that can never be one: the stream goes on without them.

create table boundary.refused_events (
  tenant_id text collate "C" not null,
  to_zone text collate "C" not null,
  predicate text collate "C" not null,
  -- Its public id.
  event_id text collate "C" not null,
  event_type text not null,
  reason text not null,
  message text not null,
  refused_at timestamptz not null default now(),
  primary key (tenant_id, to_zone, event_id, predicate)
);

select tallyman.isolate('boundary.refused_events');
