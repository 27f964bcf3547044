-- How often each process was asked with each API key in the last second, so that a rate limit holds for all of them together
-- (functions/rate_demand.sql). Not logged: after a crash it is empty, and full again a second later.
create unlogged table tallyman_server.rate_demand (
  key_id text not null,
  process text not null,
  requests double precision not null,
  at timestamptz not null default clock_timestamp(),
  primary key (key_id, process)
);
create index rate_demand_by_age on tallyman_server.rate_demand (at);
