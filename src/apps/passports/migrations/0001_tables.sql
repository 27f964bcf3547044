-- Battery passports: documents become facts, facts are sealed into snapshots, rules compile them into signed versions.
--
--   products            models of batteries
--   documents           a document of a product, such as its bill of materials; document_versions: its bytes, each upload one
--   facts               what documents say, each once; fact_sources: document, row and column where each was read
--   snapshots           a sealed selection of facts; snapshot_facts and snapshot_documents list it
--   rule_packages       rules and test cases; rule_reports: outcomes of the cases, for exactly one content
--   passports           one for each model (serial null) and each battery; items: the battery itself
--   item_predecessors   batteries that a battery was made from
--   versions            compiled, signed, labelled versions of a passport; artefacts: the bytes of each
--   item_events         individual data of a battery: signed, append-only
--   audit_events        hash-chained for each aggregate; audit_heads: signed, over all of them
--
-- functions/guards.sql keeps what must not change from changing, also by plain SQL.
--
-- Lock order: products, snapshots, rule packages, passports and versions by id, audit events.

create schema passports;

create table passports.products (
  tenant_id text collate "C" not null,
  id text collate "C" not null check (octet_length(id) between 1 and 128),
  name text not null check (name <> ''),
  category text not null check (category in ('ev', 'lmt', 'industrial', 'stationary')),
  gtin text collate "C" not null check (gtin ~ '^[0-9]{14}$'),
  manufacturer text not null check (manufacturer <> ''),
  manufacturer_id text not null check (manufacturer_id <> ''),
  created_at timestamptz not null default now(),
  primary key (tenant_id, id),
  unique (tenant_id, gtin)
);
-- A label says no tenant: the one that registered the GTIN first answers for it.
create index products_by_gtin on passports.products (gtin, created_at);

create table passports.documents (
  id uuid primary key,
  tenant_id text collate "C" not null,
  product_id text collate "C" not null,
  kind text not null check (kind in ('bill_of_materials', 'carbon_footprint', 'due_diligence', 'data_sheet')),
  name text not null check (octet_length(name) between 1 and 256),
  created_at timestamptz not null default now(),
  unique (tenant_id, product_id, name),
  foreign key (tenant_id, product_id) references passports.products (tenant_id, id)
);

-- A newer version of a document supersedes the older ones that are VALIDATED.
create table passports.document_versions (
  id uuid primary key,
  tenant_id text collate "C" not null,
  document_id uuid not null references passports.documents (id),
  number integer not null,
  format text not null check (format in ('csv', 'json')),
  sha256 text collate "C" not null check (sha256 ~ '^[0-9a-f]{64}$'),
  bytes bytea not null,
  state text not null default 'UPLOADED' check (state in ('UPLOADED', 'PARSED', 'VALIDATED', 'REJECTED')),
  fact_count integer,
  -- What is wrong with it: [{code, row, column, message}].
  problems jsonb,
  created_at timestamptz not null default now(),
  settled_at timestamptz,
  unique (document_id, number),
  check ((state = 'REJECTED') = (problems is not null))
);
create index document_versions_by_hash on passports.document_versions (tenant_id, sha256);

create table passports.facts (
  id bigint generated always as identity primary key,
  tenant_id text collate "C" not null,
  fact_type text collate "C" not null,
  fact_key text collate "C" not null,
  schema_version integer not null,
  payload_hash text collate "C" not null,
  -- Canonical JSON.
  payload text not null,
  unique (tenant_id, fact_type, fact_key, schema_version, payload_hash)
);

create table passports.fact_sources (
  fact_id bigint not null references passports.facts (id),
  document_version_id uuid not null references passports.document_versions (id),
  tenant_id text collate "C" not null,
  row_number integer not null,
  column_name text collate "C" not null,
  primary key (document_version_id, fact_id, row_number, column_name)
);
create index sources_of_fact on passports.fact_sources (fact_id);

create table passports.snapshots (
  id uuid primary key,
  tenant_id text collate "C" not null,
  product_id text collate "C" not null,
  state text not null default 'BUILDING' check (state in ('BUILDING', 'READY', 'SEALED')),
  hash text collate "C",
  fact_count integer,
  created_at timestamptz not null default now(),
  sealed_at timestamptz,
  foreign key (tenant_id, product_id) references passports.products (tenant_id, id),
  check (state = 'BUILDING' or (hash is not null and fact_count is not null)),
  check ((state = 'SEALED') = (sealed_at is not null))
);
create index snapshots_of_product on passports.snapshots (tenant_id, product_id, created_at);

create table passports.snapshot_documents (
  snapshot_id uuid not null references passports.snapshots (id),
  document_version_id uuid not null references passports.document_versions (id),
  tenant_id text collate "C" not null,
  primary key (snapshot_id, document_version_id)
);

create table passports.snapshot_facts (
  snapshot_id uuid not null references passports.snapshots (id),
  fact_id bigint not null references passports.facts (id),
  tenant_id text collate "C" not null,
  primary key (snapshot_id, fact_id)
);

create table passports.rule_packages (
  id uuid primary key,
  tenant_id text collate "C" not null,
  name text collate "C" not null check (octet_length(name) between 1 and 128),
  version text collate "C" not null check (octet_length(version) between 1 and 64),
  state text not null default 'DRAFT' check (state in ('DRAFT', 'VALIDATED', 'PUBLISHED', 'DEPRECATED', 'RETIRED')),
  -- Canonical JSON of the whole package, test cases included, and its SHA-256.
  content text not null,
  hash text collate "C" not null,
  created_at timestamptz not null default now(),
  published_at timestamptz,
  unique (tenant_id, name, version),
  check (hash = encode(sha256(convert_to(content, 'UTF8')), 'hex'))
);

-- The outcomes of all test cases of one content. Of one content and one build there is one report.
create table passports.rule_reports (
  tenant_id text collate "C" not null,
  rules_hash text collate "C" not null,
  build text collate "C" not null,
  -- [{name, passed, differences}] in the order of the package's cases.
  outcomes jsonb not null,
  passed boolean not null,
  created_at timestamptz not null default now(),
  primary key (tenant_id, rules_hash, build)
);

create table passports.passports (
  id uuid primary key,
  tenant_id text collate "C" not null,
  product_id text collate "C" not null,
  -- Null: the passport of the model.
  serial text collate "C",
  created_at timestamptz not null default now(),
  unique nulls not distinct (tenant_id, product_id, serial),
  foreign key (tenant_id, product_id) references passports.products (tenant_id, id)
);

create table passports.items (
  passport_id uuid primary key references passports.passports (id),
  tenant_id text collate "C" not null,
  gtin text collate "C" not null,
  serial text collate "C" not null,
  manufactured_on text not null,
  manufactured_at text not null,
  status text not null check (status in ('original', 'repurposed', 'reused', 'remanufactured', 'waste')),
  -- Set once the battery is recycled: its passport has ceased to exist, its address answers with a tombstone.
  ceased_at timestamptz,
  ceased_reason text,
  created_at timestamptz not null default now(),
  unique (tenant_id, gtin, serial),
  check ((ceased_at is null) = (ceased_reason is null)),
  check (ceased_at is null or status = 'waste')
);
create index items_by_link on passports.items (gtin, serial);
create index items_by_serial on passports.items (tenant_id, serial);

create table passports.item_predecessors (
  passport_id uuid not null references passports.items (passport_id),
  predecessor_id uuid not null references passports.items (passport_id),
  tenant_id text collate "C" not null,
  created_at timestamptz not null default now(),
  primary key (passport_id, predecessor_id),
  check (passport_id <> predecessor_id)
);
create index successors_of_item on passports.item_predecessors (predecessor_id);

-- Everything that could differ between two compiles is fixed when the row is written, before its job is enqueued.
create table passports.versions (
  id uuid primary key,
  tenant_id text collate "C" not null,
  passport_id uuid not null references passports.passports (id),
  number integer not null,
  state text not null default 'COMPILING' check (state in ('COMPILING', 'SIGNED', 'ACTIVE', 'SUPERSEDED', 'REVOKED')),
  snapshot_id uuid not null references passports.snapshots (id),
  rules_id uuid not null references passports.rule_packages (id),
  -- The model's version that an item links to.
  model_version_id uuid references passports.versions (id),
  -- Product and item as they were, canonical JSON.
  product text not null,
  item text,
  issued_at text collate "C" not null,
  build text collate "C" not null,
  signing_key text collate "C" not null,
  -- Secret: with it one can try candidates for withheld values. In clear, like the withheld values in `artefacts` (decision 23).
  salt text not null check (salt ~ '^[0-9a-f]{64}$'),
  payload_hash text collate "C",
  proof_hash text collate "C",
  receipt_hash text collate "C",
  signature bytea check (octet_length(signature) = 64),
  qr_text text,
  qr_png bytea,
  -- Why it cannot be compiled, signed or labelled; the job that says so is FAILED.
  error jsonb,
  reason text,
  created_at timestamptz not null default now(),
  signed_at timestamptz,
  active_at timestamptz,
  ended_at timestamptz,
  unique (passport_id, number),
  unique (tenant_id, passport_id, snapshot_id, rules_id, build, issued_at),
  check ((payload_hash is null) = (receipt_hash is null) and (proof_hash is null) = (receipt_hash is null)),
  check (state in ('COMPILING', 'REVOKED') or (signature is not null and receipt_hash is not null)),
  check (state not in ('ACTIVE', 'SUPERSEDED') or qr_png is not null)
) with (fillfactor = 70);
create unique index one_active_version on passports.versions (passport_id) where state = 'ACTIVE';
create index versions_of_snapshot on passports.versions (snapshot_id);
create index versions_of_rules on passports.versions (rules_id);
create index versions_of_model on passports.versions (model_version_id) where model_version_id is not null;

-- Canonical JSON, as hashed.
create table passports.artefacts (
  version_id uuid primary key references passports.versions (id),
  tenant_id text collate "C" not null,
  payload text not null,
  proof text not null,
  receipt text not null
);

create table passports.item_events (
  passport_id uuid not null references passports.items (passport_id),
  seq integer not null,
  tenant_id text collate "C" not null,
  type text not null,
  -- Canonical JSON: {data, occurred_at, passport_id, previous, seq, type, version}. `hash` is its SHA-256, `signature` signs it.
  content text not null,
  hash text collate "C" not null,
  signing_key text collate "C" not null,
  signature bytea not null check (octet_length(signature) = 64),
  occurred_at timestamptz not null,
  created_at timestamptz not null default now(),
  -- The same key again adds nothing.
  event_key text collate "C",
  primary key (passport_id, seq),
  unique (passport_id, event_key)
);

-- hash = SHA-256 of the lines: previous hash, aggregate type and id, seq, type, at, data.
create table passports.audit_events (
  position bigint generated always as identity,
  tenant_id text collate "C" not null,
  aggregate_type text collate "C" not null,
  aggregate_id text collate "C" not null,
  seq integer not null,
  type text not null,
  -- UTC, RFC 3339 with microseconds: text, because it is hashed.
  at text collate "C" not null,
  data text not null,
  previous text collate "C" not null,
  hash text collate "C" not null,
  -- The number of the head that covers it; null until a head does.
  head integer,
  primary key (tenant_id, aggregate_type, aggregate_id, seq)
) with (fillfactor = 85);
create index audit_uncovered on passports.audit_events (tenant_id, position) where head is null;
create index audit_by_head on passports.audit_events (tenant_id, head, position) where head is not null;

-- hash = SHA-256 of canonical {at, leaves, number, previous, tenant, version}; leaves: [[aggregate type, id, seq, hash]].
create table passports.audit_heads (
  tenant_id text collate "C" not null,
  number integer not null,
  at text collate "C" not null,
  leaves text not null,
  previous text collate "C" not null,
  hash text collate "C" not null,
  signing_key text collate "C" not null,
  signature bytea not null check (octet_length(signature) = 64),
  primary key (tenant_id, number)
);

select tallyman.isolate(format('passports.%I', t)::regclass)
  from unnest(array['products', 'documents', 'document_versions', 'facts', 'fact_sources', 'snapshots', 'snapshot_documents',
                    'snapshot_facts', 'rule_packages', 'rule_reports', 'passports', 'items', 'item_predecessors', 'versions',
                    'artefacts', 'item_events', 'audit_events', 'audit_heads']) t;
