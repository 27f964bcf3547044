-- Tenants. The programs that do the work (workers, retention, the command line) own the tables and see all of them. Who acts
-- for one tenant only, such as the HTTP API, takes the role `tallyman_tenant` and names the tenant, for one transaction:
--
--   set local role tallyman_tenant; select set_config('tallyman.tenant', 'acme', true);
--
-- From then on every statement, with or without a filter of its own, sees and writes rows of that tenant only.

-- Every table that holds something of a tenant.
create table tallyman.isolated_tables (
  name text primary key
);

-- Puts a table under row-level security. Parts of the product call this for the tables of their own schemas. In a numbered
-- file, with the next one, because the statements below call it (see migrate.ts).
create function tallyman.isolate(p_table regclass) returns void
language plpgsql as $$
begin
  execute format('alter table %s enable row level security', p_table);
  execute format($policy$create policy tenant on %s
    using (tenant_id = current_setting('tallyman.tenant', true))
    with check (tenant_id = current_setting('tallyman.tenant', true))$policy$, p_table);
  insert into tallyman.isolated_tables (name)
  select format('%I.%I', n.nspname, c.relname)
    from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = p_table;
  if to_regrole('tallyman_tenant') is not null then
    perform tallyman.grant_to_tenants(p_table);
  end if;
end $$;

create function tallyman.grant_to_tenants(p_table regclass) returns void
language plpgsql as $$
declare
  v_schema name := (select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = p_table);
begin
  execute format('grant usage on schema %I to tallyman_tenant', v_schema);
  execute format('grant select, insert, update, delete on %s to tallyman_tenant', p_table);
  execute format('grant usage on all sequences in schema %I to tallyman_tenant', v_schema);
end $$;

select tallyman.isolate('tallyman.jobs');
select tallyman.isolate('tallyman.lanes');
select tallyman.isolate('tallyman.lane_gates');
select tallyman.isolate('tallyman.history');
select tallyman.isolate('tallyman.dead_letters');
select tallyman.isolate('tallyman.dedupe_keys');
select tallyman.isolate('tallyman.schedules');
select tallyman.isolate('tallyman.log_streams');
