-- The role that acts for one tenant at a time; see migrations/0002_tenants.sql.

-- Makes the role and gives it what it needs. A role belongs to the whole server and takes the right to make roles: where
-- that was missing when this was migrated, the API calls it again and says what is missing.
--
-- Every process calls it when it starts. Two grants on one object at a time fail with "tuple concurrently updated", so it
-- takes the lock that migrations hold (migrate.ts), which grant, too. That lock is of one database; the role and who is a
-- member of it belong to all databases of the server, hence the exceptions.
create or replace function tallyman.prepare_tenants() returns void
language plpgsql as $$
begin
  perform pg_advisory_xact_lock(x'74110001'::bigint);
  if to_regrole('tallyman_tenant') is null then
    begin
      create role tallyman_tenant nologin;
    exception when duplicate_object or unique_violation then
      null;  -- Another process has just made it.
    end;
  end if;
  if not pg_has_role(current_user, 'tallyman_tenant', 'member') then
    begin
      execute format('grant tallyman_tenant to %I', current_user);
    exception when unique_violation or internal_error then
      -- Another database of this server did the same. If it did not, the next statement that needs the role says so.
      null;
    end;
  end if;
  grant usage on schema tallyman to tallyman_tenant;
  -- Shared by all tenants, and nothing of any tenant in them.
  grant select on tallyman.queues, tallyman.streams, tallyman.claims, tallyman.kinds, tallyman.live_jobs
     to tallyman_tenant;
  grant insert on tallyman.queues, tallyman.streams to tallyman_tenant;
  perform tallyman.grant_to_tenants(t.name::regclass) from tallyman.isolated_tables t;
end $$;

do $$
begin
  perform tallyman.prepare_tenants();
exception when insufficient_privilege then
  null;
end $$;
