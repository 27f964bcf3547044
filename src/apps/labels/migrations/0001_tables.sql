-- Shelf labels, and what they are to show.
--
--   stores              a place with labels, and the gateway that reaches them
--   label_types         types of labels: the panel they have
--   products            what a store sells: the values that templates are filled with
--   templates           designs by name; each points to its current version
--   template_versions   every version that was ever saved: a task names the one it was made with
--   labels              one row a label, by MAC
--   pages               one row for each page of a label that was ever assigned: what it should show, and its state
--
-- Lock order, and within a table in key order: stores, label types, products, templates, labels, then the engine's lanes,
-- then pages. A transaction that changes what labels show locks their rows before it reads what to show;
-- see changes/tasks.ts.

create schema labels;

create table labels.stores (
  id bigint generated always as identity primary key,
  tenant_id text collate "C" not null,
  code text collate "C" not null check (octet_length(code) between 1 and 64),
  name text not null check (octet_length(name) between 1 and 256),
  -- A label with ten waiting changes gets the last one.
  latest_only boolean not null default false,
  currency text,
  locale text,
  -- How the gateway is reached. Sealed, because it contains a password. Kind and address are readable.
  gateway_sealed text not null,
  gateway_kind text not null,
  gateway_url text not null,
  -- Increases with each change of the gateway, so that workers know when to make a new connection.
  gateway_version integer not null default 1,
  created_at timestamptz not null default now(),
  unique (tenant_id, code)
);

create table labels.label_types (
  id bigint generated always as identity primary key,
  tenant_id text collate "C" not null,
  name text collate "C" not null check (octet_length(name) between 1 and 64),
  width smallint not null check (width between 1 and 4096),
  height smallint not null check (height between 1 and 4096),
  palette text not null check (palette in ('bw', 'bwr', 'bwy')),
  pages smallint not null default 1 check (pages between 1 and 16),
  created_at timestamptz not null default now(),
  unique (tenant_id, name)
);

-- Updated at every price change; no index covers the updated columns.
create table labels.products (
  id bigint generated always as identity primary key,
  store_id bigint not null references labels.stores (id),
  tenant_id text collate "C" not null,
  sku text collate "C" not null check (octet_length(sku) between 1 and 64),
  name text not null default '',
  -- Keeps the decimal places it was given with: 1.50 stays 1.50.
  price numeric check (price >= 0),
  attributes jsonb not null default '{}',
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  unique (store_id, sku)
) with (fillfactor = 80);

create table labels.templates (
  id bigint generated always as identity primary key,
  tenant_id text collate "C" not null,
  name text collate "C" not null check (octet_length(name) between 1 and 64),
  -- The current version; null only inside the transaction that creates the template.
  version_id bigint,
  version integer not null default 0,
  created_at timestamptz not null default now(),
  unique (tenant_id, name)
);

create table labels.template_versions (
  id bigint generated always as identity primary key,
  template_id bigint not null references labels.templates (id) on delete cascade,
  tenant_id text collate "C" not null,
  version integer not null,
  svg text not null,
  created_at timestamptz not null default now(),
  unique (template_id, version)
);

create table labels.labels (
  id bigint generated always as identity primary key,
  tenant_id text collate "C" not null,
  mac text collate "C" not null check (mac ~ '^[0-9A-F]{12}$'),
  store_id bigint not null references labels.stores (id),
  type_id bigint not null references labels.label_types (id),
  created_at timestamptz not null default now(),
  -- What the gateway said last, and when it had last heard of the label.
  battery text,
  seen_at timestamptz,
  unique (tenant_id, mac)
) with (fillfactor = 80);
create index labels_of_store on labels.labels (store_id, mac);
create index labels_of_type on labels.labels (type_id);

-- state: waiting      a task for it is on its way through the engine
--        processing   the gateway has accepted the image
--        shown        the gateway says that the label shows it
--        timeout      the gateway gave up on the label; a new task was made
--        failed       the task was given up: refused for good, or a dead letter
--
-- Ids of tasks grow with their place in the lane, and a redriven dead letter keeps its id. So `accepted_job` tells how far
-- the page has come, and a task with a smaller id has nothing to add.
create table labels.pages (
  label_id bigint not null references labels.labels (id) on delete cascade,
  page smallint not null check (page between 1 and 16),
  tenant_id text collate "C" not null,
  -- Both null: the page was cleared, and is blank.
  product_id bigint references labels.products (id),
  template_id bigint references labels.templates (id),
  state text not null default 'waiting' check (state in ('waiting', 'processing', 'shown', 'timeout', 'failed')),
  -- The task for what is wanted now.
  wanted_job bigint,
  wanted_at timestamptz,
  -- From this task on the image is pushed even if the gateway already has it.
  resync_job bigint,
  -- The last task whose image the gateway has; null hash: an attempt failed since, and it is not known what the gateway has.
  accepted_job bigint,
  accepted_hash text,
  accepted_at timestamptz,
  shown_hash text,
  shown_at timestamptz,
  -- Why it failed or timed out.
  error text,
  -- When to ask the gateway about it, and how often it was asked without a result.
  ask_at timestamptz,
  asked smallint not null default 0,
  -- How often in a row it has drifted, and until when the drift check skips it.
  drifts smallint not null default 0,
  drift_after timestamptz,
  primary key (label_id, page),
  check ((product_id is null) = (template_id is null))
) with (fillfactor = 50);
create index pages_of_product on labels.pages (product_id);
create index pages_of_template on labels.pages (template_id);
create index pages_to_ask on labels.pages (ask_at) where ask_at is not null;

select tallyman.isolate('labels.stores');
select tallyman.isolate('labels.label_types');
select tallyman.isolate('labels.products');
select tallyman.isolate('labels.templates');
select tallyman.isolate('labels.template_versions');
select tallyman.isolate('labels.labels');
select tallyman.isolate('labels.pages');
