-- The role that acts for one tenant belongs to one database; until now all databases of a server shared `tallyman_tenant`. Who
-- was a member of it for one database could act for tenants in every other. See docs/decisions/0039.
--
-- Programs of the release before go on with the shared role, in databases that they have worked on. The next release takes
-- it away; tallyman.retire_shared_tenant_role() does so sooner.

-- From the oid: a name would change when the database is renamed, and a value in a table would travel with a copy.
create function tallyman.tenant_role() returns name
language sql stable as $$
  select ('tallyman_tenant_' || d.oid)::name from pg_database d where d.datname = current_database()
$$;

-- The shared role may still be used here.
create function tallyman.keeps_shared_tenant_role() returns boolean
language sql stable as $$
  select coalesce(has_table_privilege(to_regrole('tallyman_tenant')::oid, 'tallyman.jobs', 'select'), false)
$$;

create function tallyman.grant_table_to(p_table regclass, p_role name) returns void
language plpgsql as $$
declare
  v_schema name := (select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = p_table);
begin
  execute format('grant usage on schema %I to %I', v_schema, p_role);
  execute format('grant select, insert, update, delete on %s to %I', p_table, p_role);
  execute format('grant usage on all sequences in schema %I to %I', v_schema, p_role);
end $$;

create or replace function tallyman.grant_to_tenants(p_table regclass) returns void
language plpgsql as $$
begin
  if to_regrole(tallyman.tenant_role()) is not null then
    perform tallyman.grant_table_to(p_table, tallyman.tenant_role());
  end if;
  if tallyman.keeps_shared_tenant_role() then
    perform tallyman.grant_table_to(p_table, 'tallyman_tenant');
  end if;
end $$;

create or replace function tallyman.isolate(p_table regclass) returns void
language plpgsql as $$
begin
  execute format('alter table %s enable row level security', p_table);
  execute format($policy$create policy tenant on %s
    using (tenant_id = current_setting('tallyman.tenant', true))
    with check (tenant_id = current_setting('tallyman.tenant', true))$policy$, p_table);
  insert into tallyman.isolated_tables (name)
  select format('%I.%I', n.nspname, c.relname)
    from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = p_table;
  perform tallyman.grant_to_tenants(p_table);
end $$;

-- What a role was granted here, and by whose objects.
create function tallyman.grants_of(p_role name)
returns table (kind text, object text, privilege text, owner oid)
language sql stable as $$
  select case c.relkind when 'S' then 'sequence' else 'table' end, c.oid::regclass::text, a.privilege_type, c.relowner
    from pg_class c, aclexplode(c.relacl) a where a.grantee = to_regrole(p_role)
  union all
  select 'schema', format('%I', n.nspname), a.privilege_type, n.nspowner
    from pg_namespace n, aclexplode(n.nspacl) a where a.grantee = to_regrole(p_role)
  union all
  select 'routine', p.oid::regprocedure::text, a.privilege_type, p.proowner
    from pg_proc p, aclexplode(p.proacl) a where a.grantee = to_regrole(p_role)
$$;

-- Takes from a role what it was granted here, as far as this user may.
create function tallyman.revoke_from(p_role name) returns void
language plpgsql as $$
declare
  v_grant record;
begin
  for v_grant in
    select distinct g.kind, g.object from tallyman.grants_of(p_role) g where pg_has_role(g.owner, 'usage') loop
    execute format('revoke all on %s %s from %I', v_grant.kind, v_grant.object, p_role);
  end loop;
end $$;

-- A database that no program has worked on yet needs no shared role; what 0002 granted to one that another database made.
do $$
begin
  if not exists (select from tallyman.functions) then
    perform tallyman.revoke_from('tallyman_tenant');
  end if;
end $$;
