-- The role that acts for one tenant at a time in this database; see migrations/0002_tenants.sql and
-- 0003_role_for_each_database.sql.

-- This statement runs for a tenant, and not for the user that connected.
create or replace function tallyman.acts_for_tenant() returns boolean
language sql stable as $$
  select current_user in ('tallyman_tenant', tallyman.tenant_role())
$$;

-- This user may take the role. Since PostgreSQL 16 the creator of a role is a member of it without the right to SET ROLE.
create or replace function tallyman.may_become(p_role name) returns boolean
language sql stable as $$
  select pg_has_role(current_user, p_role,
                     case when current_setting('server_version_num')::integer >= 160000 then 'set' else 'member' end)
$$;

-- Roles of other databases that have rights here: they came with a copy of that database, or with its dump.
create or replace function tallyman.tenant_roles_of_others() returns setof name
language sql stable as $$
  select distinct r.rolname
    from pg_class c, aclexplode(c.relacl) a join pg_roles r on r.oid = a.grantee
   where c.oid = 'tallyman.jobs'::regclass
     and r.rolname ~ '^tallyman_tenant_[0-9]+$' and r.rolname <> tallyman.tenant_role()
$$;

-- The role is there, this user may take it, it has what it needs, and no other database's role has it too.
create or replace function tallyman.is_tenant_role_ready() returns boolean
language plpgsql stable as $$
declare
  v_role name := tallyman.tenant_role();
begin
  -- One by one: PostgreSQL evaluates the parts of a condition in any order.
  if to_regrole(v_role) is null then
    return false;
  end if;
  return tallyman.may_become(v_role)
     and has_table_privilege(v_role, 'tallyman.kinds', 'select')
     and not exists (select from tallyman.isolated_tables t where not has_table_privilege(v_role, t.name, 'delete'))
     and not exists (select from tallyman.tenant_roles_of_others());
end $$;

-- Makes the role and gives it what it needs. To make a role takes a right of its own: where that was missing when this was
-- migrated, servers and workers call it again and say what is missing.
--
-- Every process calls it when it starts. Two grants on one object at a time fail with "tuple concurrently updated", so it
-- takes the lock that migrations hold (migrate.ts), which grant, too.
create or replace function tallyman.prepare_tenant_role() returns void
language plpgsql as $$
declare
  v_role name := tallyman.tenant_role();
  v_other name;
begin
  perform pg_advisory_xact_lock(x'74110001'::bigint);
  if to_regrole(v_role) is null then
    execute format('create role %I nologin', v_role);
  end if;
  if not tallyman.may_become(v_role) then
    execute format('grant %I to %I', v_role, current_user);
  end if;
  -- What users granted on tables of their own goes along, once.
  if not has_table_privilege(v_role, 'tallyman.jobs', 'select') then
    if tallyman.keeps_shared_tenant_role() then
      perform tallyman.copy_grants('tallyman_tenant', v_role);
    end if;
    perform tallyman.copy_grants(o, v_role) from tallyman.tenant_roles_of_others() o;
  end if;
  for v_other in select * from tallyman.tenant_roles_of_others() loop
    perform tallyman.revoke_from(v_other);
  end loop;
  perform tallyman.grant_shared_to(v_role);
  perform tallyman.grant_to_tenants(t.name::regclass) from tallyman.isolated_tables t;
end $$;

-- Shared by all tenants, and nothing of any tenant in them.
create or replace function tallyman.grant_shared_to(p_role name) returns void
language plpgsql as $$
begin
  execute format('grant usage on schema tallyman to %I', p_role);
  execute format('grant select on tallyman.queues, tallyman.streams, tallyman.claims, tallyman.kinds, tallyman.live_jobs to %I', p_role);
  execute format('grant insert on tallyman.queues, tallyman.streams to %I', p_role);
end $$;

create or replace function tallyman.copy_grants(p_from name, p_to name) returns void
language plpgsql as $$
declare
  v_grant record;
begin
  for v_grant in select g.* from tallyman.grants_of(p_from) g where pg_has_role(g.owner, 'usage') loop
    execute format('grant %s on %s %s to %I', v_grant.privilege, v_grant.kind, v_grant.object, p_to);
  end loop;
end $$;

-- Ends what the shared role of release 0.2 and earlier may do here. Programs of that release stop working.
create or replace function tallyman.retire_shared_tenant_role() returns void
language plpgsql as $$
begin
  perform pg_advisory_xact_lock(x'74110001'::bigint);
  if to_regrole('tallyman_tenant') is not null then
    perform tallyman.revoke_from('tallyman_tenant');
  end if;
end $$;

-- For programs of release 0.2, which take the role that all databases of a server share. The next release drops it.
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
  if not tallyman.may_become('tallyman_tenant') then
    begin
      execute format('grant tallyman_tenant to %I', current_user);
    exception when unique_violation or internal_error then
      -- Another database of this server did the same. If it did not, the next statement that needs the role says so.
      null;
    end;
  end if;
  perform tallyman.grant_shared_to('tallyman_tenant');
  perform tallyman.grant_table_to(t.name::regclass, 'tallyman_tenant') from tallyman.isolated_tables t;
end $$;

-- PL/pgSQL looks functions up when they are called, so the order of those in this file does not matter.
do $$
begin
  if not tallyman.is_tenant_role_ready() then
    perform tallyman.prepare_tenant_role();
  end if;
exception when insufficient_privilege then
  raise notice 'the role % is missing, or % is no member of it: servers and workers say what to run',
    tallyman.tenant_role(), current_user;
end $$;
