-- One row as soon as an API key has ever existed, and for good: the server is open without keys only before that. Revoking,
-- expiring and deleting keys leave it (functions/first_key.sql writes it).
create table tallyman_server.first_key (
  is_made boolean primary key default true check (is_made),
  made_at timestamptz not null default now()
);
