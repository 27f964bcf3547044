-- The role that acts for one tenant at a time; see migrations/0002_tenants.sql.

-- Makes the role and gives it what it needs. A role belongs to the whole server and takes the right to make roles: where
-- that was missing when this was migrated, the API calls it again and says what is missing.
create or replace function tallyman.prepare_tenants() returns void
language plpgsql as $$
begin
  if to_regrole('tallyman_tenant') is null then
    begin
      create role tallyman_tenant nologin;
    exception when duplicate_object or unique_violation then
      null;  -- Somebody else was faster.
    end;
  end if;
  if not pg_has_role(current_user, 'tallyman_tenant', 'member') then
    execute format('grant tallyman_tenant to %I', current_user);
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
