-- Events that a listener could not handle by themselves: it goes on without them, and tries them again from time to time.
create table tallyman_events.set_aside (
  listener text not null,
  event_id bigint not null,
  tries integer not null default 1,
  error text not null,
  since timestamptz not null default now(),
  retry_at timestamptz not null,
  primary key (listener, event_id)
);
create index set_aside_due on tallyman_events.set_aside (listener, retry_at);
