-- The same for callers whose payload is jsonb, or a text.
--
-- A literal, and a parameter that has no type yet, fits json and jsonb alike, and PostgreSQL would refuse the call as ambiguous.
-- With a version for text it takes that one: where the type is open, it prefers a type of strings. So these three
-- belong together. Only the version for json has a default for the payload: a call without one fits no other.

create or replace function tallyman.enqueue(
  kind text,
  payload jsonb,
  queue text default null,
  priority integer default null,
  lane text default null,
  delay interval default null,
  scheduled_at timestamptz default null,
  dedupe_key text default null,
  tenant_id text default 'default',
  max_attempts integer default null,
  correlation_id text default null,
  latest_only boolean default null,
  trace text default null
) returns bigint
language sql as $$
  select tallyman.enqueue($1, $2::json, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
$$;

create or replace function tallyman.enqueue(
  kind text,
  payload text,
  queue text default null,
  priority integer default null,
  lane text default null,
  delay interval default null,
  scheduled_at timestamptz default null,
  dedupe_key text default null,
  tenant_id text default 'default',
  max_attempts integer default null,
  correlation_id text default null,
  latest_only boolean default null,
  trace text default null
) returns bigint
language sql as $$
  select tallyman.enqueue($1, $2::json, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
$$;

create or replace function tallyman.enqueue_many(
  jobs jsonb, tenant_id text default 'default', correlation_id text default null
) returns table (n integer, id bigint, existing boolean)
language sql as $$
  select * from tallyman.enqueue_many($1::json, $2, $3)
$$;

create or replace function tallyman.enqueue_many(
  jobs text, tenant_id text default 'default', correlation_id text default null
) returns table (n integer, id bigint, existing boolean)
language sql as $$
  select * from tallyman.enqueue_many($1::json, $2, $3)
$$;
