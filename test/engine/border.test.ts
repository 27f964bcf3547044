import { expect, onTestFinished, test } from 'vitest';
import type { Database } from '../../src/engine/database/database.ts';
import { freshDatabase } from '../support/postgres.ts';
import { readSource, sourcesOf, textsOf } from '../support/sources.ts';

/*
 * The border of the engine in SQL: others call its public functions, and never touch its tables.
 */

/** Still to be moved behind the border. An entry that is no longer needed fails the test. */
const known: readonly string[] = [];

interface Schema {
  /** Tables, views, sequences and types. */
  readonly relations: ReadonlySet<string>;
  readonly functions: ReadonlySet<string>;
  /** Functions that everybody may call. */
  readonly open: ReadonlySet<string>;
}

/** Names of the engine's schema in a text of SQL that are not for others. */
function trespasses(sql: string, { relations, functions, open }: Schema): string[] {
  return [...sql.matchAll(/\btallyman\s*\.\s*"?([a-z_]+)"?/gi)]
    .map(([, name = '']) => name.toLowerCase())
    .filter((name) => relations.has(name) || (functions.has(name) && !open.has(name)))
    .map((name) => `tallyman.${name}`);
}

const withoutComments = (sql: string): string => sql.replace(/--.*$/gm, '').replace(/\/\*[\s\S]*?\*\//g, '');

const sqlOf = (path: string): string =>
  path.endsWith('.sql') ? withoutComments(readSource(path)) : textsOf(readSource(path)).join('\n');

/** The list at the top of the file that defines them. */
function listed(): string[] {
  const header = sourcesOf('.sql')
    .map(readSource)
    .find((sql) => sql.startsWith('-- The public interface'));
  return [...(header ?? '').matchAll(/^-- {3}([a-z_]+)\(/gm)].map(([, name = '']) => name);
}

async function schemaOf(database: Database): Promise<Schema> {
  const names = async (catalogue: string): Promise<Set<string>> => {
    const { rows } = await database.query<{ name: string }>(catalogue);
    return new Set(rows.map(({ name }) => name));
  };
  return {
    relations: await names(
      `select relname as name from pg_class where relnamespace = 'tallyman'::regnamespace and relkind <> 'i'`,
    ),
    functions: await names(
      `select proname as name from pg_proc where pronamespace = 'tallyman'::regnamespace`,
    ),
    open: new Set(listed()),
  };
}

async function schema(): Promise<Schema> {
  const { database, drop } = await freshDatabase();
  onTestFinished(drop);
  return schemaOf(database);
}

test('what is listed as public exists', async () => {
  const { functions, open } = await schema();
  expect(open.size).toBeGreaterThan(5);
  expect([...open].filter((name) => !functions.has(name))).toEqual([]);
});

test('nothing outside the engine names its tables, nor a function that is not public', async () => {
  const border = await schema();
  const outside = sourcesOf('.ts', '.cjs', '.sql').filter((path) => !path.startsWith('src/engine/'));
  expect(outside.length).toBeGreaterThan(200);
  const found = outside.flatMap((path) => trespasses(sqlOf(path), border).map((name) => `${path}: ${name}`));
  expect(found).toEqual(known);
});

test('it would be found', async () => {
  const border = await schema();
  const inCode = (source: string): string[] => trespasses(textsOf(source).join('\n'), border);
  expect(inCode("query('select 1 from tallyman.jobs')")).toEqual(['tallyman.jobs']);
  expect(inCode(`query(\`update t set x = \${x} from Tallyman."lanes" l\`)`)).toEqual(['tallyman.lanes']);
  expect(inCode("query('select nextval(\\'tallyman.positions\\')')")).toEqual(['tallyman.positions']);
  expect(inCode("query('select * from tallyman.live_jobs')")).toEqual(['tallyman.live_jobs']);
  expect(inCode("query('select tallyman.enqueue_full($1)')")).toEqual(['tallyman.enqueue_full']);
  expect(inCode("query('select tallyman.enqueue($1)')")).toEqual([]);
  expect(inCode(`tallyman.jobs.list(); // tallyman.jobs\n\`\${tallyman.lanes}\``)).toEqual([]);
  expect(trespasses(withoutComments('delete from tallyman.history; -- tallyman.jobs'), border)).toEqual([
    'tallyman.history',
  ]);
});
