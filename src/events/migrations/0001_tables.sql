-- Domain events.
--
--   events      what happened, written in the transaction that made it happen
--   listeners   who follows the events, and the cursor of each
--
-- Other components read `events` and refer to its ids; only the functions of this component write to it.

create schema tallyman_events;

-- Never give it a CACHE: readers rely on smaller ids being drawn earlier, whichever session draws them.
create sequence tallyman_events.event_ids;
-- From here on `position()` is below every id that is drawn after it was read.
select nextval('tallyman_events.event_ids');

-- On the hot path of tag reads: only two narrow indexes per event.
create table tallyman_events.events (
  id bigint primary key,
  occurred_at timestamptz not null,
  created_at timestamptz not null default now(),
  tenant_id text collate "C" not null,
  event_type text not null check (octet_length(event_type) between 1 and 128),
  aggregate_type text not null check (octet_length(aggregate_type) between 1 and 128),
  aggregate_id text not null check (octet_length(aggregate_id) between 1 and 512),
  -- The id that the emitter gave; see event_id(). No dot: it is sent as webhook-id, where dots separate what is signed.
  event_key text collate "C" check (event_key ~ '^[A-Za-z0-9_:-]{1,128}$' and event_key !~ '^evt_[0-9]+$'),
  -- json, not jsonb: readers get the payload as it was written, numbers of any size included.
  payload json not null
) with (autovacuum_vacuum_insert_scale_factor = 1);
create index events_of_tenant on tallyman_events.events (tenant_id, id);
create unique index events_by_key on tallyman_events.events (event_key, tenant_id) where event_key is not null;
-- Events come nearly in the order of time, so a block range of them is a range of time (BRIN).
create index events_by_time on tallyman_events.events using brin (created_at) with (pages_per_range = 32, autosummarize = on);

create table tallyman_events.listeners (
  name text primary key check (octet_length(name) between 1 and 128),
  -- Every event up to here has been handled.
  cursor bigint not null,
  -- Function of (bigint[]) that returns the events that the listener still needs; null: it needs none that it has passed.
  needs regprocedure,
  moved_at timestamptz not null default now()
) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

select tallyman.isolate('tallyman_events.events');
