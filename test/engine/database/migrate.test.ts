import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, expect, onTestFinished, test } from 'vitest';
import { Database } from '../../../src/engine/database/database.ts';
import {
  type Change,
  type Component,
  engineComponent,
  type MigrateOptions,
  migrate,
  requireMigrated,
} from '../../../src/engine/database/migrate.ts';
import { emptyDatabase } from '../../support/postgres.ts';

interface Files {
  readonly migrations?: Readonly<Record<string, string>>;
  readonly functions?: Readonly<Record<string, string>>;
}

/** A component as one version of a program has it. */
async function component(files: Files, name = 'shop'): Promise<Component> {
  const folder = await mkdtemp(join(tmpdir(), 'tallyman-migrate-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  for (const part of ['migrations', 'functions'] as const) {
    await mkdir(join(folder, part));
    for (const [file, sql] of Object.entries(files[part] ?? {}))
      await writeFile(join(folder, part, `${file}.sql`), sql);
  }
  const at = (part: string) => pathToFileURL(`${join(folder, part)}/`);
  return { name, folder: at('migrations'), functions: at('functions') };
}

async function database(): Promise<Database> {
  const { url, drop } = await emptyDatabase();
  const opened = await Database.connect({ url, poolSize: 4 });
  onTestFinished(async () => {
    await opened.close();
    await drop();
  });
  return opened;
}

const names = (changes: readonly Change[]): string[] =>
  changes.map((change) => `${change.component}/${change.name}`);

/** What was applied. */
async function applied(db: Database, components: Component[], options: MigrateOptions = {}) {
  return names((await migrate(db, { ...options, components })).applied);
}

async function pending(db: Database, components: Component[], options: MigrateOptions = {}) {
  return names((await migrate(db, { ...options, components, dryRun: true })).pending);
}

async function value(db: Database, expression: string): Promise<unknown> {
  return (await db.query<{ value: unknown }>(`select ${expression} as value`)).rows[0]?.value;
}

const tables = { '0001_tables': 'create schema shop; create table shop.items (id integer)' };
const price = (cents: number) =>
  `create or replace function shop.price() returns integer language sql as $$ select ${cents} $$`;

describe('functions', () => {
  test('are applied after the tables, and again only when their text changes', async () => {
    const db = await database();
    const first = await component({
      migrations: tables,
      functions: { price: price(1), stock: 'create or replace view shop.stock as select * from shop.items' },
    });
    const all = ['shop/0001_tables', 'shop/functions/price', 'shop/functions/stock'];
    expect(await pending(db, [first])).toEqual(all);
    expect(await applied(db, [first])).toEqual(all);
    expect(await applied(db, [first])).toEqual([]);

    const second = await component({
      migrations: tables,
      functions: { price: price(2), stock: 'create or replace view shop.stock as select * from shop.items' },
    });
    expect(await pending(db, [second])).toEqual(['shop/functions/price']);
    await expect(requireMigrated(db, [second])).rejects.toMatchObject({
      code: 'NOT_MIGRATED',
      message: 'The database lacks 1 function file, first "shop/functions/price". Run: tallyman migrate',
    });
    expect(await value(db, 'shop.price()')).toBe(1);
    expect(await applied(db, [second])).toEqual(['shop/functions/price']);
    expect(await value(db, 'shop.price()')).toBe(2);
    await requireMigrated(db, [second]);
  });

  test('may refer to each other in any order, and to tables that do not exist yet', async () => {
    const db = await database();
    const shop = await component({
      migrations: tables,
      functions: {
        a_total:
          'create or replace function shop.total() returns integer language sql as $$ select shop.price() * 2 $$',
        price: price(21),
      },
    });
    await applied(db, [shop]);
    expect(await value(db, 'shop.total()')).toBe(42);
  });

  test('a component is complete before the next one: its migrations call functions of the one before', async () => {
    const db = await database();
    const shop = await component({ migrations: tables, functions: { price: price(7) } });
    const till = await component(
      {
        migrations: {
          '0001_till': 'create schema till; create table till.sums as select shop.price() as sum',
        },
      },
      'till',
    );
    expect(await applied(db, [shop, till])).toEqual([
      'shop/0001_tables',
      'shop/functions/price',
      'till/0001_till',
    ]);
    expect(await value(db, '(select sum from till.sums)')).toBe(7);
  });

  test('what a migration drops comes back with the functions', async () => {
    const db = await database();
    const functions = { stock: 'create or replace view shop.stock as select i.id from shop.items i' };
    await applied(db, [await component({ migrations: tables, functions })]);
    const wider = await component({
      migrations: {
        ...tables,
        '0002_wider': 'drop view shop.stock; alter table shop.items alter column id type bigint',
      },
      functions,
    });
    expect(await pending(db, [wider])).toEqual(['shop/0002_wider', 'shop/functions/stock']);
    await applied(db, [wider]);
    expect(await value(db, `(select pg_typeof(max(s.id))::text from shop.stock s)`)).toBe('bigint');
  });

  test('a program that dies between a migration and its functions leaves them to the next one', async () => {
    const db = await database();
    const functions = { stock: 'create or replace view shop.stock as select i.id from shop.items i' };
    await applied(db, [await component({ migrations: tables, functions })]);
    const wider = { ...tables, '0002_wider': 'drop view shop.stock' };
    // It ends at the first function file, as if it had been killed there.
    const dies = await component({
      migrations: wider,
      functions: { ...functions, a_broken: 'select 1 / 0' },
    });
    await expect(applied(db, [dies])).rejects.toMatchObject({ code: 'MIGRATION_FAILED' });
    expect(await value(db, `to_regclass('shop.stock')`)).toBeNull();
    const next = await component({ migrations: wider, functions });
    expect(await applied(db, [next])).toEqual(['shop/functions/stock']);
    expect(await value(db, `to_regclass('shop.stock') is not null`)).toBe(true);
  });

  test('a file that fails is undone as a whole, and says which', async () => {
    const db = await database();
    const shop = await component({ migrations: tables, functions: { price: `${price(1)}; select 1 / 0` } });
    await expect(applied(db, [shop])).rejects.toMatchObject({
      code: 'MIGRATION_FAILED',
      message:
        'Function file "shop/functions/price" failed, and nothing of it was applied: division by zero.',
    });
    expect(await value(db, `to_regproc('shop.price')`)).toBeNull();
    expect(await pending(db, [shop])).toEqual(['shop/functions/price']);
  });

  test('another result of the same function is refused with the way to do it', async () => {
    const db = await database();
    await applied(db, [await component({ migrations: tables, functions: { price: price(1) } })]);
    const other = await component({
      migrations: tables,
      functions: {
        price: `create or replace function shop.price() returns text language sql as $$ select '1' $$`,
      },
    });
    await expect(applied(db, [other])).rejects.toThrow(
      /cannot change return type.*give the new function another name or other parameters/,
    );
    expect(await value(db, 'shop.price()')).toBe(1);
  });
});

describe('programs of several releases on one database', () => {
  const shopWith = (cents: number) => component({ migrations: tables, functions: { price: price(cents) } });

  test('an older program leaves a newer text alone, and does not miss its own', async () => {
    const db = await database();
    const [older, newer] = [await shopWith(1), await shopWith(2)];
    await applied(db, [older], { release: '0.9.0' });
    await applied(db, [newer], { release: '0.10.0' });
    expect(await pending(db, [older], { release: '0.9.0' })).toEqual([]);
    expect(await applied(db, [older], { release: '0.9.0' })).toEqual([]);
    expect(await value(db, 'shop.price()')).toBe(2);
  });

  test('a newer patch of an older release does not replace a text that the newer release has, too', async () => {
    const db = await database();
    const [same, patched] = [await shopWith(1), await shopWith(2)];
    await applied(db, [same], { release: '0.2.0' });
    await applied(db, [same], { release: '0.3.0' });
    expect(await applied(db, [patched], { release: '0.2.1' })).toEqual([]);
    expect(await value(db, 'shop.price()')).toBe(1);
    // And an older one that confirms the text does not make it older.
    await applied(db, [same], { release: '0.2.0' });
    expect(await applied(db, [patched], { release: '0.2.1' })).toEqual([]);
    expect(await applied(db, [patched], { release: '0.3.1' })).toEqual(['shop/functions/price']);
  });

  test('of one release the last one wins', async () => {
    const db = await database();
    const [mine, theirs] = [await shopWith(1), await shopWith(2)];
    for (const [shop, cents] of [
      [mine, 1],
      [theirs, 2],
      [mine, 1],
    ] as const) {
      expect(await applied(db, [shop], { release: '0.2.0' })).toContain('shop/functions/price');
      expect(await value(db, 'shop.price()')).toBe(cents);
    }
  });

  test('that start at the same time apply each file once', async () => {
    const db = await database();
    const shop = await shopWith(1);
    const all = await Promise.all(Array.from({ length: 4 }, () => applied(db, [shop])));
    expect(all.flat().sort()).toEqual(['shop/0001_tables', 'shop/functions/price']);
  });
});

describe('a database that this program was not made for', () => {
  test('MIGRATION_CHANGED names the file, who applied it, and what to do', async () => {
    const db = await database();
    await applied(db, [await component({ migrations: tables })], { release: '0.2.0' });
    const edited = await component({ migrations: { '0001_tables': `${tables['0001_tables']}; -- edited` } });
    for (const look of [() => migrate(db, { components: [edited] }), () => requireMigrated(db, [edited])])
      await expect(look()).rejects.toMatchObject({
        code: 'MIGRATION_CHANGED',
        message: expect.stringMatching(
          /^Migration "shop\/0001_tables" was applied to this database, by Tallyman 0\.2\.0, with other contents.*new numbered file.*run the version that made this database/,
        ),
        details: { component: 'shop', name: '0001_tables', release: '0.2.0' },
      });
    const renamed = await component({ migrations: { '0001_shelves': 'create schema shop' } });
    await expect(migrate(db, { components: [renamed] })).rejects.toMatchObject({
      code: 'MIGRATION_CHANGED',
      message: expect.stringMatching(
        /as "shop\/0001_tables", and this program has "0001_shelves" in its place/,
      ),
    });
  });

  test('MIGRATION_CHANGED also for a database of version 0.1.0, which recorded no release', async () => {
    const db = await database();
    await db.query(`create schema tallyman;
      create table tallyman.migrations (component text, version integer, name text, checksum text, breaking boolean,
        applied_at timestamptz not null default now());
      insert into tallyman.migrations values ('engine', 1, '0001_tables', 'abc', false)`);
    await expect(migrate(db)).rejects.toMatchObject({
      code: 'MIGRATION_CHANGED',
      message: expect.stringMatching(
        /^Migration "engine\/0001_tables" was applied to this database with other/,
      ),
    });
  });

  test('a newer migration that only adds does not disturb an older program; a breaking one stops it', async () => {
    const db = await database();
    const older = await component({ migrations: tables });
    const adding = { ...tables, '0002_more': 'alter table shop.items add column name text' };
    await applied(db, [await component({ migrations: adding })], { release: '0.3.0' });
    await requireMigrated(db, [older]);
    expect(await applied(db, [older])).toEqual([]);

    const breaking = { ...adding, '0003_rename': '-- breaking\nalter table shop.items rename to goods' };
    const newest = await component({ migrations: breaking });
    const report = await migrate(db, { components: [newest], release: '0.4.0' });
    expect(report.applied).toMatchObject([{ name: '0003_rename', breaking: true }]);
    for (const dryRun of [false, true])
      await expect(migrate(db, { components: [older], release: '0.3.0', dryRun })).rejects.toMatchObject({
        code: 'DATABASE_TOO_NEW',
        message: expect.stringMatching(
          /changed by Tallyman 0\.4\.0 .*\(breaking migration "shop\/0003_rename"\), and this is Tallyman 0\.3\.0.*Update this program to 0\.4\.0 or later.*restore a backup/,
        ),
        details: { component: 'shop', name: '0003_rename', release: '0.4.0' },
      });
    // A program that does not use the component does not mind.
    await requireMigrated(db, []);
  });
});

test('the engine: a second run changes nothing', async () => {
  const db = await database();
  const { applied: files, current } = await migrate(db);
  expect(names(files)).toContain('engine/functions/claim');
  expect(current).toBe(files.filter(({ type }) => type === 'migration').length);
  expect(await migrate(db)).toMatchObject({ applied: [], pending: [], current });
  await requireMigrated(db, [engineComponent]);
});
