import { expect, test } from 'vitest';
import { listPassports } from '../../../src/apps/passports/store/index.ts';
import { enterTenant, TenantDatabase } from '../../../src/engine/database/tenant.ts';
import { passports, putSample } from './support.ts';
import { type World, world } from './world.ts';

/** What may change, and why. Everything else is refused, also in columns and tables that do not exist yet. */
const mayChange: Readonly<Record<string, string>> = {
  'products.name': 'names are corrected; versions keep the one that they were compiled with',
  'products.manufacturer': 'the same',
  'products.manufacturer_id': 'the same',
  'items.status': 'a battery is repurposed, reused, remanufactured',
  'items.ceased_at': 'a battery is recycled, once',
  'items.ceased_reason': 'the same',
  'versions.error': 'why a version could not be finished, until it is',
};

interface Column {
  readonly table: string;
  readonly column: string;
  readonly type: string;
}

const other = ({ column, type }: Column): string => {
  if (type === 'bytea') return `${column} || '\\x00'`;
  if (type === 'uuid') return 'gen_random_uuid()';
  if (type === 'boolean') return `not ${column}`;
  if (type === 'jsonb') return `'{"code":"X","message":"x"}'`;
  if (type.startsWith('timestamp')) return `coalesce(${column}, now()) + interval '1 second'`;
  if (type === 'integer' || type === 'bigint') return `coalesce(${column}, 0) + 1000000`;
  return `coalesce(${column}, '') || 'x'`;
};

/** What PostgreSQL answers to a statement, which has no effect in any case. `role`: the owner, or the role of tenants. */
async function answer({ tallyman }: World, sql: string, role: 'owner' | 'tenant'): Promise<string> {
  const enough = new Error('accepted');
  try {
    await tallyman.database.transaction(async (tx) => {
      if (role === 'tenant') await tx.query(enterTenant(tallyman.database, 'default'));
      const { rowCount } = await tx.query(sql);
      throw rowCount === 0 ? new Error(`no row: ${sql}`) : enough;
    });
    return 'nothing';
  } catch (error) {
    return (error as Error).message;
  }
}

test('BPC-2, BPC-5, BPC-11, BPC-14: no column of any table changes that must not, and no row is ever deleted, whoever asks', async () => {
  const at = await world();
  const columns = await at.rows<Column>(
    `select c.relname as table, a.attname as column, format_type(a.atttypid, null) as type
       from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
      where c.relnamespace = 'passports'::regnamespace and c.relkind = 'r' order by 1, a.attnum`,
  );
  // The guards alone: what constraints refuse is refused by chance of the value.
  await at.rows(`do $$ declare c record; begin
    for c in select conrelid::regclass as t, conname from pg_constraint
              where connamespace = 'passports'::regnamespace and contype = 'c' loop
      execute format('alter table %s drop constraint %I', c.t, c.conname); end loop;
    alter table passports.facts alter column id drop identity;
    alter table passports.audit_events alter column position drop identity; end $$`);
  const tables = [...new Set(columns.map(({ table }) => table))];
  const accepted = new Set<string>();
  const otherwise: string[] = [];
  for (const role of ['owner', 'tenant'] as const) {
    for (const column of columns) {
      const where = column.table === 'items' ? 'where ceased_at is null' : '';
      const said = await answer(
        at,
        `update passports.${column.table} set ${column.column} = ${other(column)} ${where}`,
        role,
      );
      const name = `${column.table}.${column.column}`;
      if (said === 'accepted') accepted.add(name);
      else if (!/^[A-Z_]{8,}: /.test(said) && !/row-level security/.test(said))
        otherwise.push(`${name}: ${said}`);
    }
    for (const table of tables) {
      expect(await answer(at, `delete from passports.${table}`, role), table).toMatch(
        /never changed or deleted/,
      );
      expect(await answer(at, `truncate passports.${table} cascade`, role), table).toMatch(
        role === 'owner' ? /never changed or deleted/ : /permission denied/,
      );
    }
  }
  expect([...accepted].sort()).toEqual(Object.keys(mayChange).sort());
  expect(otherwise).toEqual([]);
});

const machines: Readonly<
  Record<string, { readonly states: readonly string[]; readonly steps: readonly string[] }>
> = {
  versions: {
    states: ['COMPILING', 'SIGNED', 'ACTIVE', 'SUPERSEDED', 'REVOKED'],
    steps: ['COMPILING SIGNED', 'SIGNED ACTIVE', 'SIGNED REVOKED', 'ACTIVE SUPERSEDED', 'ACTIVE REVOKED'],
  },
  document_versions: {
    states: ['UPLOADED', 'PARSED', 'VALIDATED', 'REJECTED'],
    steps: ['UPLOADED PARSED', 'UPLOADED REJECTED', 'PARSED VALIDATED', 'PARSED REJECTED'],
  },
  snapshots: { states: ['BUILDING', 'READY', 'SEALED'], steps: ['BUILDING READY', 'READY SEALED'] },
  rule_packages: {
    states: ['DRAFT', 'VALIDATED', 'PUBLISHED', 'DEPRECATED', 'RETIRED'],
    steps: [
      'DRAFT VALIDATED',
      'VALIDATED DRAFT',
      'VALIDATED PUBLISHED',
      'PUBLISHED DEPRECATED',
      'DEPRECATED RETIRED',
    ],
  },
};

test('BPC-2, BPC-5, BPC-6, BPC-11: states change by the steps that are drawn, and by no other', async () => {
  const at = await world();
  const checks = await at.rows<{ drop: string }>(
    `select format('alter table %s drop constraint %I', conrelid::regclass, conname) as drop from pg_constraint
      where connamespace = 'passports'::regnamespace and contype = 'c'`,
  );
  for (const { drop } of checks) await at.rows(drop);
  await at.rows('drop index passports.one_active_version');
  for (const [table, { states, steps }] of Object.entries(machines)) {
    const found: string[] = [];
    for (const from of states)
      for (const to of states.filter((state) => state !== from)) {
        const one = `(select min(id::text)::uuid from passports.${table}
          ${table === 'versions' ? `where passport_id not in (select passport_id from passports.items where ceased_at is not null)` : ''})`;
        const said = await answer(
          at,
          `set local session_replication_role = replica;
           update passports.${table} set state = '${from}' where id = ${one};
           set local session_replication_role = origin;
           update passports.${table} set state = '${to}' where id = ${one}`,
          'owner',
        );
        if (said === 'accepted') found.push(`${from} ${to}`);
        else expect(said, `${table} ${from} ${to}`).toMatch(/cannot become|is sealed/);
      }
    expect(found.sort(), table).toEqual([...steps].sort());
  }
});

test('BPC-11: a tenant sees nothing of another', async () => {
  const bundle = await passports();
  await bundle.change((work) => putSample(work, bundle.means));
  const stranger = new TenantDatabase(bundle.tallyman.database, 'other');
  expect((await listPassports(stranger)).items).toEqual([]);
  expect((await listPassports(bundle.on)).items).toHaveLength(3);
  expect((await stranger.query('select 1 from passports.document_versions')).rows).toEqual([]);
});
