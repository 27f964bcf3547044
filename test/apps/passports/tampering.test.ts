import { expect, test } from 'vitest';
import { extendHead } from '../../../src/apps/passports/audit/head.ts';
import { type KnownHead, verifyAudit } from '../../../src/apps/passports/audit/verify.ts';
import { replayVersion } from '../../../src/apps/passports/replay.ts';
import { SnapshotCache } from '../../../src/apps/passports/snapshot-cache.ts';
import { enterTenant, TenantScope } from '../../../src/engine/database/tenant.ts';
import { type World, world } from './world.ts';

interface Column {
  readonly table: string;
  readonly column: string;
  readonly type: string;
}

/** Columns that are evidence of nothing, each with the reason. A new column is found here by nobody: it has to be bound. */
const free: Readonly<Record<string, string>> = {
  'audit_events.position': 'the order in which heads take events up; what a head covers is in its leaves',
};

/** One bit or one step away from what is there. */
const changed = (type: string, column: string): string => {
  if (type === 'bytea') return `set_byte(${column}, 3, get_byte(${column}, 3) # 1)`;
  if (type === 'uuid') return 'gen_random_uuid()';
  if (type === 'boolean') return `not ${column}`;
  if (type === 'jsonb')
    return `case jsonb_typeof(${column}) when 'array' then ${column} || '[1]' else jsonb_set(${column}, '{code}', '"X"') end`;
  if (type.startsWith('timestamp')) return `${column} + interval '1 millisecond'`;
  if (type === 'integer' || type === 'bigint') return `${column} + 1000000`;
  return `left(${column}, -1) || chr(ascii(right(${column}, 1)) # 1)`;
};

/** Runs `damage` as an owner who has taken the guards down, asks what the checks find, and takes it all back. */
async function found(at: World, damage: string, known?: KnownHead): Promise<string | null> {
  let finding: string | null = null;
  const enough = new Error('rolled back');
  await at.tallyman.database
    .transaction(async (tx) => {
      await tx.query('set local session_replication_role = replica');
      const { rowCount } = await tx.query(damage);
      if (rowCount === 0) throw new Error(`nothing to damage: ${damage}`);
      await tx.query(enterTenant(at.tallyman.database, 'default'));
      const on = new TenantScope('default', tx, { prepare: false });
      finding = await firstFinding(at, on, known);
      throw enough;
    })
    .catch((error: unknown) => {
      if (error !== enough) throw error;
    });
  return finding;
}

async function firstFinding({ means, versions }: World, on: TenantScope, known?: KnownHead) {
  const { broken } = await verifyAudit(on, means.keys, known ? { known } : {});
  if (broken) return `${broken.at}: ${broken.message}`;
  const snapshots = new SnapshotCache();
  for (const { id, receiptHash } of versions) {
    if (receiptHash === null) continue;
    try {
      await replayVersion(on, id, means, snapshots);
    } catch (error) {
      return (error as Error).message;
    }
  }
  return null;
}

test('BPC-14, BPC-15: one changed bit in any column of any table is found and named, and so is a deleted row', async () => {
  const at = await world();
  expect(await at.on.transaction((on) => firstFinding(at, on))).toBeNull();
  // An owner can also drop what the tables themselves refuse.
  await at.rows(`do $$ declare c record; begin
    for c in select conrelid::regclass as t, conname from pg_constraint
              where connamespace = 'passports'::regnamespace and contype in ('c', 'u') loop
      execute format('alter table %s drop constraint %I', c.t, c.conname); end loop;
    alter table passports.facts alter column id drop identity; end $$`);
  const columns = await at.rows<Column>(
    `select c.relname as table, a.attname as column, format_type(a.atttypid, null) as type
       from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
      where c.relnamespace = 'passports'::regnamespace and c.relkind = 'r' order by 1, a.attnum`,
  );
  expect(columns.length).toBeGreaterThan(120);
  const missed: string[] = [];
  const findings: Record<string, string> = {};
  const tables = [...new Set(columns.map(({ table }) => table))];
  for (const table of tables) {
    const finding = await found(
      at,
      `delete from passports.${table} t where t.ctid = (select max(o.ctid) from passports.${table} o)`,
    );
    if (finding === null) missed.push(`a deleted row of ${table}`);
  }
  for (const { table, column, type } of columns) {
    const name = `${table}.${column}`;
    if (name in free) continue;
    const finding = await found(
      at,
      `update passports.${table} t set ${column} = ${changed(type, column)}
        where t.ctid = (select max(o.ctid) from passports.${table} o where o.${column} is not null)`,
    );
    if (finding === null) missed.push(name);
    else findings[name] = finding;
  }
  expect(missed).toEqual([]);
  // A finding says where: a row and column, an event, a head, or what replay could not make again.
  for (const [name, finding] of Object.entries(findings))
    expect(finding, name).toMatch(
      /^(\w+ .+ \(\w+\): |\w+:\S+#\d+: |head \d+: |event \d+ of passport:\S+: |version \S+: replay gives another )/,
    );
  expect(findings['document_versions.bytes']).toMatch(/^document_versions \S+ \(bytes\)/);
  expect(findings['facts.payload']).toMatch(/^facts \S+ \(payload\)/);
  expect(findings['rule_packages.content']).toMatch(/^rule_packages \S+ \(content\)/);
  expect(findings['artefacts.payload']).toMatch(/replay gives another stored payload$/);
  expect(findings['artefacts.proof']).toMatch(/replay gives another stored proof$/);
  expect(findings['versions.salt']).toMatch(/replay gives another (payload hash|input)/);
  expect(findings['versions.qr_text']).toMatch(/replay gives another text of the document code$/);
  expect(findings['item_events.signature']).toMatch(/^event 2 of passport:.*signature/);
});

test('BPC-14: a cut tail, a deleted aggregate, a deleted head and a trail that was taken back are named', async () => {
  const at = await world();
  const before = await verifyAudit(at.on, at.means.keys);
  expect(before).toMatchObject({ heads: 1, uncovered: 0, broken: null });
  const cases: readonly (readonly [damage: string, named: RegExp, known?: KnownHead])[] = [
    [
      `delete from passports.audit_events e where e.aggregate_type = 'version' and e.seq =
         (select max(o.seq) from passports.audit_events o where o.aggregate_id = e.aggregate_id)`,
      /^version:\S+#\d: it was deleted/,
    ],
    [
      `delete from passports.audit_events where aggregate_type = 'snapshot'`,
      /^snapshot:\S+#1: it was deleted/,
    ],
    [`delete from passports.audit_events where aggregate_type = 'version'`, /^version:\S+#1: it was deleted/],
    [
      `with gone as (delete from passports.audit_events where aggregate_type = 'version' and type = 'version.revoked' returning 1),
            head as (update passports.audit_heads set leaves = '[]' returning 1) select 1 from gone, head`,
      /^head 1: its content was changed/,
    ],
    ['delete from passports.audit_heads', /^head 1: it was deleted/],
    [
      'with e as (update passports.audit_events set head = null returning 1), h as (delete from passports.audit_heads returning 1) select 1 from e',
      /^head 1: it was known once and is gone/,
      before.head as KnownHead,
    ],
    [
      `with v as (delete from passports.item_events where seq = 2 returning 1) select 1 from v`,
      /^item_events \S+#2 \(row\): the row was deleted/,
    ],
  ];
  for (const [damage, named, known] of cases) expect(await found(at, damage, known), damage).toMatch(named);
  // What no head covers yet is protected by the rows that it tells of.
  await at.change(async (work) => {
    const [version] = at.versions.filter(({ state }) => state === 'ACTIVE');
    await work.on.query(`update passports.versions set state = 'REVOKED', ended_at = now() where id = $1`, [
      version?.id,
    ]);
  });
  expect((await verifyAudit(at.on, at.means.keys)).broken?.at).toMatch(/^versions \S+ \(state\)/);
  expect(await at.on.transaction((scope) => extendHead(scope, at.means.keys))).toBe(0);
});
