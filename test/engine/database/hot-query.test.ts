import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import { Database } from '../../../src/engine/database/database.ts';
import { eventually } from '../../support/eventually.ts';
import { emptyDatabase } from '../../support/postgres.ts';

async function opened(poolSize = 4): Promise<Database> {
  const { url, drop } = await emptyDatabase();
  const database = await Database.connect({ url, poolSize });
  onTestFinished(async () => {
    if (!database.pool.ended) await database.close();
    await drop();
  });
  return database;
}

const backend = { name: 'backend', text: 'select pg_backend_pid()' };
const slow = { name: 'slow', text: 'select pg_backend_pid(), pg_sleep($1::float8)' };
const pidOf = async (asked: Promise<readonly (readonly (string | null)[])[]>) => (await asked)[0]?.[0];

describe('statements of the hot paths', () => {
  test.each([true, false])('values go in and come out as they are (prepared: %s)', async (prepare) => {
    const database = await opened();
    database.prepare = prepare;
    const words = ['', 'null', 'NULL', '"', '\\', 'a,b', '{}', ' ', "'", 'é€😀', 'x\ny'];
    const statement = {
      name: 'all',
      text: 'select $1::text, $2::int, $3::boolean, $4::text, array_to_json($5::text[]), $6::bigint[], unnest($7::int[])',
    };
    for (let round = 0; round < 2; round += 1)
      expect(
        await database.run(statement, ['it\'s "\\', 7, true, null, words, ['9007199254740993'], [1, 2]]),
      ).toEqual(
        [1, 2].map((n) => [
          'it\'s "\\',
          '7',
          't',
          null,
          JSON.stringify(words),
          '{9007199254740993}',
          String(n),
        ]),
      );
    expect(await database.run({ name: 'none', text: 'select 1 where false' }, [])).toEqual([]);
    const prepared = await database.query('select name from pg_prepared_statements order by 1');
    expect(prepared.rows).toEqual(prepare ? [{ name: 'all' }, { name: 'none' }] : []);
  });

  test('an error is the caller’s alone, and the connection goes on', async () => {
    const database = await opened(1);
    const divide = { name: 'divide', text: 'select 1 / $1::int' };
    await expect(database.run(divide, [0])).rejects.toMatchObject({ code: '22012' });
    await expect(database.run({ name: 'typo', text: 'selekt' }, [])).rejects.toMatchObject({ code: '42601' });
    expect(await database.run(divide, [1])).toEqual([['1']]);
    await database.transaction(async (tx) => {
      await tx.query('savepoint s');
      await expect(database.run(divide, [0], tx)).rejects.toMatchObject({ code: '22012' });
      await tx.query('rollback to s');
      expect(await database.run(divide, [1], tx)).toEqual([['1']]);
    });
  });
});

describe('the connection at hand', () => {
  const isThere = (database: Database) =>
    eventually(async () => {
      await database.run(backend, []);
      expect(database.isHotConnectionFree).toBe(true);
    });
  const withHotConnection = async () => {
    const database = await opened();
    database.keepHotConnection();
    await isThere(database);
    return database;
  };

  test('runs what comes one by one; what comes meanwhile does not wait for it', async () => {
    const database = await withHotConnection();
    const first = await pidOf(database.run(backend, []));
    const { rows } = await database.query<{ pid: number }>('select pg_backend_pid() as pid');
    expect(String(rows[0]?.pid)).not.toBe(first);
    expect(await pidOf(database.run(backend, []))).toBe(first);
    const [one, two] = await Promise.all([
      pidOf(database.run(slow, [0.3])),
      pidOf(database.run(backend, [])),
    ]);
    expect(one).toBe(first);
    expect(two).not.toBe(first);
    await expect(database.run({ name: 'bad', text: 'select 1 / 0' }, [])).rejects.toThrow('division by zero');
    expect(await pidOf(database.run(backend, []))).toBe(first);
  });

  test('is opened again when it was lost, idle or in the middle of a statement', async () => {
    const database = await withHotConnection();
    for (const isIdle of [true, false]) {
      const first = await pidOf(database.run(backend, []));
      const under = isIdle ? undefined : expect(database.run(slow, [60])).rejects.toThrow();
      await sleep(50);
      await database.query('select pg_terminate_backend($1)', [first]);
      await under;
      await isThere(database);
      expect(await pidOf(database.run(backend, []))).not.toBe(first);
    }
  });

  test('has no plans that read a whole table, and the pool is as it was', async () => {
    const database = await withHotConnection();
    const text = `select current_setting('enable_seqscan') as value`;
    expect(await database.run({ name: 'setting', text }, [])).toEqual([['off']]);
    expect((await database.query(text)).rows).toEqual([{ value: 'on' }]);
  });

  test('behind a transaction pooler there is none', async () => {
    const database = await opened();
    database.prepare = false;
    database.keepHotConnection();
    await sleep(200);
    expect(database.isHotConnectionFree).toBe(false);
  });

  test('is closed after what it has under way', async () => {
    const database = await withHotConnection();
    const under = database.run(slow, [0.3]);
    const closed = database.close();
    expect(await under).toHaveLength(1);
    await closed;
  });
});
