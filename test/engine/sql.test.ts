import { basename } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import { defineKind } from '../../src/engine/jobs/kind.ts';
import { registerKinds } from '../../src/engine/jobs/recover.ts';
import { SqlFunction } from '../../src/engine/sql/sql-function.ts';
import { freshDatabase } from '../support/postgres.ts';
import { readSource, sourcesOf, textsOf } from '../support/sources.ts';

/*
 * Each module of src/engine/sql says which parameters its function has. PostgreSQL knows.
 */

type AnyFunction = SqlFunction<Record<string, 'text' | 'text?'>>;

const folder = 'src/engine/sql/';

async function declared(): Promise<{ readonly path: string; readonly sql: AnyFunction }[]> {
  const modules = await Promise.all(
    sourcesOf('.ts')
      .filter((path) => path.startsWith(folder))
      .map(async (path) => ({
        path,
        exports: Object.values(await import(/* @vite-ignore */ `../../${path}`)),
      })),
  );
  return modules.flatMap(({ path, exports }) =>
    exports
      .filter((value): value is AnyFunction => value instanceof SqlFunction)
      .map((sql) => ({ path, sql })),
  );
}

interface Signature {
  readonly name: string;
  /** `name type`, with `?` where there is a default. */
  readonly parameters: readonly string[];
}

const signatureOf = (sql: AnyFunction): Signature => ({
  name: sql.name,
  parameters: Object.entries(sql.parameters).map(([name, type]) => `${sql.nameInSql(name)} ${type}`),
});

async function signatures(): Promise<Signature[]> {
  const { database, drop } = await freshDatabase();
  onTestFinished(drop);
  const { rows } = await database.query<Signature>(`
    select p.proname as name, coalesce(a.parameters, '{}') as parameters
      from pg_proc p,
           lateral (select array_agg(p.proargnames[i.n] || ' ' || format_type(i.type, null)
                              || case when i.n > p.pronargs - p.pronargdefaults then '?' else '' end order by i.n) as parameters
                      from unnest(p.proargtypes::oid[]) with ordinality as i (type, n)) a
     where p.pronamespace = 'tallyman'::regnamespace`);
  return rows;
}

test('each module declares the parameters that its function has: names, types, order, defaults', async () => {
  const inDatabase = await signatures();
  const known = (await declared()).map(({ sql }) => signatureOf(sql));
  expect(known.length).toBeGreaterThan(30);
  expect(known).toEqual(
    known.map((one) => {
      const sameName = inDatabase.filter(({ name }) => name === one.name);
      return sameName.find((other) => isDeepStrictEqual(other, one)) ?? sameName[0];
    }),
  );
});

test('a wrong name, type, order or default would be found', async () => {
  const inDatabase = await signatures();
  const right = inDatabase.find(({ name }) => name === 'redrive');
  expect(signatureOf(new SqlFunction('redrive', { id: 'bigint', toHead: 'boolean?' }) as never)).toEqual(
    right,
  );
  for (const wrong of [
    new SqlFunction('redrive', { id: 'bigint', head: 'boolean?' }),
    new SqlFunction('redrive', { id: 'integer', toHead: 'boolean?' }),
    new SqlFunction('redrive', { toHead: 'boolean?', id: 'bigint' }),
    new SqlFunction('redrive', { id: 'bigint', toHead: 'boolean' }),
    new SqlFunction('redrive', { id: 'bigint', toHead: 'boolean?' }, { prefix: '' }),
    new SqlFunction('redrive', { id: 'bigint' }),
  ])
    expect(signatureOf(wrong as never)).not.toEqual(right);
});

test('there is one module for each function, of the same name', async () => {
  const all = await declared();
  expect(all.map(({ path }) => basename(path, '.ts'))).toEqual(
    all.map(({ sql }) => sql.name.replaceAll('_', '-')),
  );
});

test('no other module of the engine writes a call of a function', async () => {
  const functions = new Set((await signatures()).map(({ name }) => name));
  const calls = sourcesOf('.ts', '.cjs')
    .filter((path) => path.startsWith('src/engine/') && !path.startsWith(folder))
    .flatMap((path) =>
      [
        ...textsOf(readSource(path))
          .join('\n')
          .matchAll(/\btallyman\.([a-z_]+)\s*\(/g),
      ]
        .filter(([, name = '']) => functions.has(name))
        .map(([call]) => `${path}: ${call}`),
    );
  expect(calls).toEqual([]);
});

test('a kind that says nothing is the same kind in SQL and in TypeScript', async () => {
  const { database, drop } = await freshDatabase();
  onTestFinished(drop);
  await registerKinds(database, [defineKind({ name: 'in-typescript', handler: () => {} })]);
  await database.query(`select tallyman.register_kind('in-sql')`);
  const { rows } = await database.query('select to_jsonb(k) - $1::text[] as kind from tallyman.kinds k', [
    ['name', 'registered_at'],
  ]);
  expect(rows).toHaveLength(2);
  expect(rows[0]).toEqual(rows[1]);
});
