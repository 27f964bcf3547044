-- The tables of the engine. docs/decisions/0002-claims-as-rows.md says why the lease is not on the job.
--
--   jobs        what to do and when; untouched between ready and finished
--   lanes       a key under which jobs run one after another; an item of a stream, claimed as a job is
--   lane_gates  the writers' lock of each lane, apart from its state: a writer never holds up the lane's holder
--   streams     one row for each (queue, priority, variant): whose turn it is to claim, and how far claims have come
--   claims      one row for each claimed batch: the lease
--   workers     a row for each worker; its session-level lock ends with its process
--   history     finished jobs, one partition a day, dropped whole
--
-- Lock order, for the whole engine: claims by token -> jobs -> dedupe_keys by key -> lane_gates by lane -> lanes by id ->
-- streams by id -> queues. docs/decisions/0013-lock-order-and-liveness.md says why nothing can deadlock, and why each
-- kind of work is always reached.

-- Every id, position and lane sequence number comes from here. Never give it a CACHE: within a lane, and for the
-- floor of a stream, a smaller number must mean "drawn earlier", whichever session drew it.
create sequence tallyman.positions;
create sequence tallyman.tokens;

create table tallyman.queues (
  name text primary key check (octet_length(name) between 1 and 128),
  paused_at timestamptz,
  -- Fleet-wide limits; null is no limit.
  max_running integer check (max_running > 0),
  rate_per_second double precision check (rate_per_second > 0),
  rate_burst double precision check (rate_burst >= 1),
  rate_tokens double precision not null default 0,
  rate_refilled_at timestamptz not null default now()
);

-- variant: ''         ordinary
--          'suspect'  was held, with others, by a worker that died: claimed one at a time, started one by one
--          'alone'    died with its worker again, or for certain: no other suspect runs beside it
--          'kind:K'   jobs of kind K that a worker claimed which does not know K
--
-- Invariant, held by the lock on the row: floor <= cursor; a ready position below floor is held by a claim or gone;
-- between floor and cursor there may also be one whose transaction committed late; at or above cursor all are free
-- but for those listed in a claim whose max_pos reaches that far (only after a release moved the cursor back).
create table tallyman.streams (
  id integer generated always as identity primary key,
  queue text not null,
  priority smallint not null check (priority between 0 and 3),
  variant text not null default '',
  cursor bigint not null default 0,
  floor bigint not null default 0,
  -- Once every transaction below mark_xid has ended, nothing can appear below mark any more: floor may move there.
  mark bigint not null default 0,
  mark_xid xid8,
  -- Claims of this stream below this token are gone; dead index entries below it need not be looked at.
  first_token bigint not null default 0,
  unique (queue, priority, variant)
) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

create table tallyman.jobs (
  id bigint primary key,
  -- Free job: its place in the stream, null until it is due. Job in a lane: its seq, from the start.
  pos bigint,
  lane bigint,
  stream integer not null,
  attempts smallint not null default 0,
  max_attempts smallint not null check (max_attempts > 0),
  latest_only boolean not null default false,
  created_at timestamptz not null default now(),
  scheduled_at timestamptz not null default now(),
  kind text not null,
  tenant_id text not null,
  payload json not null,
  correlation_id text,
  dedupe_key text,
  last_error json,
  -- Crashes of workers (tallyman.crashes) that it may have caused, and for which no job was charged yet.
  suspected_of bigint[],
  -- W3C traceparent of the enqueue and, behind a blank, its tracestate. Goes with the job: neither history nor dead
  -- letters keep it.
  trace text
) with (
  fillfactor = 90, toast_tuple_target = 512,
  autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_vacuum_insert_scale_factor = 1, autovacuum_analyze_scale_factor = 0.2
);
create index jobs_ready on tallyman.jobs (stream, pos) where lane is null and pos is not null;
create index jobs_due on tallyman.jobs (scheduled_at) where lane is null and pos is null;
create index jobs_in_lane on tallyman.jobs (lane, pos) where lane is not null;

create table tallyman.lanes (
  id bigint generated always as identity primary key,
  tenant_id text not null,
  queue text not null,
  key text not null check (octet_length(key) between 1 and 256),
  stream integer not null,
  -- Set while the lane has work that is due. Drawn again each time it becomes ready: that is what a claim holds.
  pos bigint,
  -- Set while the lane's head waits for its time.
  due_at timestamptz,
  -- No pending job of this lane has a smaller seq.
  floor bigint not null default 0,
  -- A redrive put a job at the head while the lane may be held: letting go must look from floor again.
  rewound boolean not null default false,
  blocked_at timestamptz,
  blocked_by bigint,
  rested_at timestamptz not null default now(),
  unique (tenant_id, queue, key)
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
-- A writer locks the gate of a lane until its commit, so that within the lane seq order is commit order. The lane's
-- state is in another row, which belongs to its holder: settling never waits for a writer, nor loses to one.
create table tallyman.lane_gates (
  lane bigint primary key,
  tenant_id text not null,
  policy text not null default 'skip' check (policy in ('skip', 'block'))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
create index lanes_ready on tallyman.lanes (stream, pos) where pos is not null;
create index lanes_due on tallyman.lanes (due_at) where due_at is not null;
create index lanes_blocked on tallyman.lanes (blocked_at) where blocked_at is not null;

-- A position is held if and only if a row here lists it; only deleting the row, or taking the position out of it,
-- under the row's lock, frees it. The lease decides when others may do that; it never frees anything by itself.
create table tallyman.claims (
  token bigint primary key,
  worker text not null,
  stream integer not null,
  claimed_at timestamptz not null default clock_timestamp(),
  renewed_at timestamptz not null default clock_timestamp(),
  expires_at timestamptz not null,
  -- The second rule: no heartbeat until here means stuck, however long the lease.
  stale_at timestamptz not null,
  positions bigint[] not null,
  max_pos bigint not null,
  -- So many unconfirmed jobs of each lane may have been started, at the most.
  lane_jobs integer not null default 0,
  -- One item of a crashed batch.
  isolated boolean not null default false,
  -- Ids of jobs whose start was recorded: isolated ones, last attempts, and jobs that are all a worker holds. Only these
  -- are charged.
  started bigint[]
) with (fillfactor = 50, toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0);
-- Kept as they are: to compress them took a fifth of a claim's time.
alter table tallyman.claims alter column positions set storage external;
create index claims_of_stream on tallyman.claims (stream, token);

-- A worker holds a session-level advisory lock (presence_key) as long as it lives. Where the lock is free, the worker is
-- gone, or has lost its connection and will be back in a moment.
create table tallyman.workers (
  id text primary key,
  started_at timestamptz not null default clock_timestamp(),
  missing_since timestamptz
);

-- Crashes with several suspects. When one of them dies alone it is charged for this one, too, and the others no longer are.
create table tallyman.crashes (
  id bigint primary key,
  worker text not null,
  at timestamptz not null default clock_timestamp(),
  caused_by bigint
);

create table tallyman.dedupe_keys (
  tenant_id text not null,
  kind text not null,
  key text not null check (octet_length(key) between 1 and 512),
  job_id bigint not null,
  -- How long after the job's end the key is kept; null is as long as history is.
  keep interval,
  -- Set when the job has ended; null while it lives.
  expires_at timestamptz,
  primary key (tenant_id, kind, key)
) with (fillfactor = 80);
create index dedupe_keys_expiring on tallyman.dedupe_keys (expires_at) where expires_at is not null;

create table tallyman.history (
  id bigint not null,
  finished_at timestamptz not null,
  status text not null check (status in ('SUCCEEDED', 'FAILED', 'CANCELLED', 'SUPERSEDED')),
  -- Tells queue and priority. Streams are never removed.
  stream integer not null,
  attempts smallint not null,
  max_attempts smallint not null,
  created_at timestamptz not null,
  scheduled_at timestamptz not null,
  kind text not null,
  tenant_id text not null,
  payload json not null,
  lane text,
  seq bigint,
  worker text,
  correlation_id text,
  dedupe_key text,
  last_error json
) partition by range (finished_at);
create index history_id on tallyman.history (id);
create index history_unhappy on tallyman.history (status, id) where status <> 'SUCCEEDED';
create table tallyman.history_default partition of tallyman.history default;

-- One list for everything that used up its attempts, whatever part of the system it came from.
create table tallyman.dead_letters (
  id bigint primary key,
  source text not null default 'job',
  queue text not null,
  kind text not null,
  tenant_id text not null,
  entity_type text not null default 'job',
  entity_id text not null,
  priority smallint not null,
  attempts smallint not null,
  max_attempts smallint not null,
  redrives integer not null default 0,
  created_at timestamptz not null,
  first_failed_at timestamptz not null,
  last_failed_at timestamptz not null,
  payload json not null,
  lane text,
  lane_policy text,
  latest_only boolean not null default false,
  seq bigint,
  correlation_id text,
  dedupe_key text,
  last_error json
);
create index dead_letters_by_kind on tallyman.dead_letters (tenant_id, kind, id);

create table tallyman.kinds (
  name text primary key,
  queue text not null,
  priority smallint not null check (priority between 0 and 3),
  max_attempts smallint not null,
  lane_policy text not null,
  latest_only boolean not null,
  dedupe_keep interval,
  -- The HTTP API and the command line enqueue it for anybody who may enqueue; otherwise only code and SQL do.
  is_public boolean not null default false,
  registered_at timestamptz not null default now()
);

create table tallyman.checkpoints (
  source text primary key check (octet_length(source) between 1 and 256),
  position json not null,
  version bigint not null default 1,
  updated_at timestamptz not null default now()
);

create table tallyman.schedules (
  name text not null check (octet_length(name) between 1 and 200),
  cron text not null,
  timezone text not null,
  kind text not null,
  payload json not null,
  tenant_id text not null,
  options json not null,
  enabled boolean not null default true,
  next_run_at timestamptz not null,
  last_run_at timestamptz,
  last_job_id bigint,
  primary key (tenant_id, name)
);

create table tallyman.log_streams (
  id integer generated always as identity primary key,
  tenant_id text not null,
  name text not null check (octet_length(name) between 1 and 256),
  -- A key is unique among the tenant's streams of one key space.
  key_space text not null check (octet_length(key_space) between 1 and 256),
  -- Changes when offsets could be issued a second time, such as after a restore from a backup.
  epoch uuid not null default gen_random_uuid(),
  -- Moved only under the row's lock, which is held until the commit: so offsets are dense and in commit order.
  next_offset bigint not null default 1,
  -- Entries below this offset were trimmed; their keys are in log_keys.
  first_offset bigint not null default 1,
  -- Of the last entry; before the first one, of the epoch (see log_append).
  chain bytea not null,
  -- Of the payloads that were not trimmed.
  bytes bigint not null default 0,
  -- When the last entry was appended: times never decrease along the offsets, whatever the clock does.
  appended_at timestamptz not null default '-infinity',
  deleted_at timestamptz,
  constraint log_streams_name unique (tenant_id, name)
) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

create table tallyman.log_entries (
  "offset" bigint not null,
  appended_at timestamptz not null,
  -- Names tenant, key space and key: see log/entry.ts.
  key_hash uuid not null,
  stream integer not null,
  -- Of the payload.
  bytes integer not null,
  key text collate "C" not null,
  digest bytea not null,
  chain bytea not null,
  payload json not null,
  primary key (stream, "offset"),
  constraint log_entries_key unique (key_hash)
) with (autovacuum_vacuum_insert_scale_factor = 1);

-- A key is promised forever, an entry is not: before an entry is trimmed, its key is copied here.
create table tallyman.log_keys (
  "offset" bigint not null,
  key_hash uuid primary key,
  -- The first half of the entry's digest: enough to tell whether content is the same.
  digest uuid not null,
  stream integer not null
);

-- What functions pass to each other.

-- A job that is to be enqueued, through the steps of enqueue_full.
create type tallyman.new_job as (
  n integer,                 -- its place in the call, from 1
  id bigint,                 -- of the job that owns its dedupe key; null where it has none
  is_existing boolean,       -- that is another job: this one is not written
  queue text, stream integer, kind text, payload json, max_attempts smallint, tenant_id text,
  scheduled_at timestamptz,  -- null: now
  correlation_id text, dedupe_key text,
  dedupe_keep interval,      -- how long after the job's end the key is kept; null is as long as history is
  lane text, lane_policy text, latest_only boolean, trace text
);

-- Jobs that a worker has finished, through the steps of settle.
create type tallyman.done_jobs as (
  worker text,
  streams integer[], positions bigint[],                         -- the free ones; each stream once
  lanes bigint[], first_seqs bigint[], last_seqs bigint[],       -- those in lanes; each lane once, with its range
  seqs bigint[],                                                 -- the same one by one, where that is asked for
  superseded bigint[],                                           -- seqs of those that were not run
  keep_ms double precision                                       -- how long history is kept; 0: not written
);

-- What a claim holds, as recovery sees it.
create type tallyman.held_item as (
  token bigint, stream integer, queue text, priority smallint, variant text, pos bigint, lane bigint,
  job bigint, job_pos bigint,  -- the free job, or the head of the lane
  lane_jobs integer, is_isolated boolean, has_started boolean
);
