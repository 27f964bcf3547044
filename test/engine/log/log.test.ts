import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Database } from '../../../src/engine/database/database.ts';
import { Log } from '../../../src/engine/log/log.ts';
import { type FreshDatabase, freshDatabase } from '../../support/postgres.ts';

let fresh: FreshDatabase;
let log: Log;

beforeEach(async () => {
  fresh = await freshDatabase();
  log = new Log(fresh.database);
});
afterEach(() => fresh.drop());

const numbers = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, i) => from + i);
const entry = (key: string, payload: unknown = { key }) => ({ key, payload });
const appendAll = (keys: readonly string[]) =>
  Promise.all(keys.map((key) => log.append('facts', entry(key))));
const keysOf = (count: number, name = 'k'): string[] => numbers(1, count).map((n) => `${name}${n}`);
const offsetsIn = async (stream = 'facts'): Promise<number[]> =>
  (await log.read(stream, { limit: 100_000 })).map(({ offset }) => offset);

const codeOf = (answer: object): unknown => ('code' in answer ? answer.code : 'in');

describe('append', () => {
  it('BND-4: concurrent callers share commits, and get dense offsets in the order of their calls', async () => {
    const answers = await appendAll(keysOf(2500));
    expect(answers.map(({ offset }) => offset)).toEqual(numbers(1, 2500));
    expect(answers.every(({ existing }) => !existing)).toBe(true);
    const { rows } = await fresh.database.query(
      'select count(distinct xmin::text)::int as commits from tallyman.log_entries',
    );
    expect(rows[0]?.commits).toBeLessThan(10);
  });

  it('BND-4: two processes, duplicates, conflicts and rollbacks leave no gap and no double', async () => {
    const other = new Log(fresh.database);
    const outcomes = await Promise.allSettled(
      numbers(1, 600).flatMap((n) => [
        log.append('facts', entry(`k${n}`)),
        other.append('facts', entry(`k${n % 200}`)),
        other.append('facts', entry(`k${n % 50}`, 'something else')),
        ...(n % 40 === 0
          ? [
              fresh.database.transaction(async (tx) => {
                await log.appendWithin(tx, 'facts', [entry(`never${n}`), entry(`never${n}b`)]);
                throw new Error('rolled back');
              }),
            ]
          : []),
      ]),
    );
    const read = await log.read('facts', { limit: 100_000 });
    expect(read.map(({ offset }) => offset)).toEqual(numbers(1, read.length));
    expect(new Set(read.map(({ key }) => key)).size).toBe(read.length);
    expect(read.some(({ key }) => key.startsWith('never'))).toBe(false);
    expect(read.length).toBeGreaterThanOrEqual(600);
    const refused = outcomes.filter((outcome) => outcome.status === 'rejected').map(({ reason }) => reason);
    expect(
      refused.filter(({ code }) => code !== 'CONFLICTING_DUPLICATE').map(({ message }) => message),
    ).toEqual(Array(15).fill('rolled back'));
  });

  it('BND-3: the same key and content answers the first offset, in one batch and later', async () => {
    const [first, again] = await appendAll(['a', 'a']);
    expect(first).toEqual({ offset: 1, existing: false });
    expect(again).toEqual({ offset: 1, existing: true });
    expect(await log.append('facts', entry('a'))).toEqual({ offset: 1, existing: true });
    expect(await log.append('facts', entry('b'))).toEqual({ offset: 2, existing: false });
    expect(await log.append('other', entry('a'))).toEqual({ offset: 1, existing: false });
  });

  it('BND-3: a conflicting duplicate fails alone, whatever shares its batch', async () => {
    await log.append('facts', entry('taken', 1));
    const outcomes = await Promise.allSettled([
      log.append('facts', entry('new')),
      log.append('facts', entry('taken', 2)),
      log.append('facts', entry('taken', 1)),
      log.append('facts', entry('twice', 'first')),
      log.append('facts', entry('twice', 'second')),
      log.append('facts', entry('last')),
    ]);
    expect(outcomes.map((o) => (o.status === 'fulfilled' ? o.value : o.reason.code))).toEqual([
      { offset: 2, existing: false },
      'CONFLICTING_DUPLICATE',
      { offset: 1, existing: true },
      { offset: 3, existing: false },
      'CONFLICTING_DUPLICATE',
      { offset: 4, existing: false },
    ]);
    expect((await log.find('facts', 'taken'))?.entry?.payload).toBe(1);
  });

  it('takes the identity from the digest where one is given', async () => {
    const [same, other] = ['a'.repeat(64), 'b'.repeat(64)];
    await log.append('facts', { key: 'a', payload: { at: 1 }, digest: same });
    const again = await log.append('facts', { key: 'a', payload: { at: 2 }, digest: same });
    expect(again).toEqual({ offset: 1, existing: true });
    const changed = log.append('facts', { key: 'a', payload: { at: 1 }, digest: other });
    await expect(changed).rejects.toMatchObject({ code: 'CONFLICTING_DUPLICATE' });
  });

  it('gives back what it was given, and a payload that the server refuses fails alone', async () => {
    const payloads = [
      null,
      '',
      'a\nb\u2028c',
      'nul \0',
      'half \ud800',
      { 'ключ"\\': [1, { x: '{}"\n' }] },
      'NULL',
      '{a,b}',
      1e21,
    ];
    let deep: unknown = 0;
    for (let i = 0; i < 3000; i += 1) deep = [deep];
    await fresh.database.query(
      `alter database ${new URL(fresh.url).pathname.slice(1)} set max_stack_depth = '100kB'`,
    );
    // A new session has the setting.
    const database = await Database.connect({ url: fresh.url });
    const sharp = new Log(database);
    const outcomes = await Promise.allSettled([
      ...payloads.map((payload, i) => sharp.append('facts', entry(`k"\\,{}${i}`, payload))),
      sharp.append('facts', entry('deep', deep)),
      sharp.append('facts', entry('after')),
    ]);
    expect(outcomes.map(({ status }) => status)).toEqual([
      ...payloads.map(() => 'fulfilled'),
      'rejected',
      'fulfilled',
    ]);
    const read = await sharp.read('facts');
    expect(read.map(({ payload }) => payload)).toEqual([...payloads, { key: 'after' }]);
    expect(read.map(({ offset }) => offset)).toEqual(numbers(1, payloads.length + 1));
    await database.close();
  });

  it('refuses what it cannot keep, naming it', async () => {
    const refused = async (stream: string, key: string, payload: unknown) =>
      log.append(stream, { key, payload }).catch(({ message }) => message);
    expect(await refused('', 'k', 1)).toContain('stream');
    expect(await refused('s', '', 1)).toContain('key');
    expect(await refused('s', 'k\0', 1)).toContain('NUL');
    expect(await refused('s', 'k\ud800', 1)).toContain('well-formed');
    expect(await refused('s', 'k'.repeat(513), 1)).toContain('512 bytes');
    expect(await refused('s', 'k', undefined)).toContain('JSON');
    expect(await refused('s', 'k', 'x'.repeat(2 ** 20))).toContain('the limit is 1048576');
    expect(await log.head('s')).toEqual({ first: 1, last: 0 });
  });

  it('large payloads are split over several statements', async () => {
    const payload = 'x'.repeat(900_000);
    const answers = await Promise.all(keysOf(12).map((key) => log.append('facts', { key, payload })));
    expect(answers.map(({ offset }) => offset)).toEqual(numbers(1, 12));
  });

  it('BND-14: entries of one call keep their order: behind one that cannot be appended now nothing is appended', async () => {
    await log.append('facts', entry('taken', 1));
    await fresh.database.query(
      `create function not_now() returns trigger language plpgsql as
         $$ begin raise exception 'not now' using errcode = '57014'; end $$`,
    );
    await fresh.database.query(
      `create trigger not_now before insert on tallyman.log_entries for each row
         when (new.key = 'c300') execute function not_now()`,
    );
    // The first commit has these and 500 entries of the call, and fails. The next one does not.
    const others = Promise.allSettled(keysOf(500, 'other').map((key) => log.append('facts', entry(key))));
    const call = keysOf(700, 'c').map((key) => entry(key));
    const [answers, after] = await Promise.all([
      log.appendAll('facts', call),
      log.append('facts', entry('after')),
      others,
    ]);
    expect(answers.map(codeOf)).toEqual(numbers(1, 700).map((n) => (n <= 500 ? '57014' : 'HELD_BACK')));
    expect(after).toEqual({ offset: 2, existing: false });
    await fresh.database.query('drop trigger not_now on tallyman.log_entries');
    expect(await log.appendAll('facts', call)).toEqual(
      numbers(3, 702).map((offset) => ({ offset, existing: false })),
    );
    // What can never be appended holds back nothing.
    const mixed = [entry('x'), entry('taken', 2), entry('large', 'x'.repeat(2 ** 20)), entry('y')];
    expect((await log.appendAll('facts', mixed)).map(codeOf)).toEqual([
      'in',
      'CONFLICTING_DUPLICATE',
      'PAYLOAD_TOO_LARGE',
      'in',
    ]);
  });

  it('asks by key whatever the plan was made for: a session that began with an empty log walks no stream', async () => {
    await fresh.database.transaction(async (tx) => {
      // A key that is taken makes it look up all the others, too.
      for (const batch of [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]) {
        const keys = ['same', ...keysOf(batch === 0 ? 0 : 200, `b${batch}-`)];
        await log.appendWithin(
          tx,
          'facts',
          keys.map((key) => entry(key)),
        );
      }
      const { rows } = await tx.query(
        `select seq_tup_read::int as walked, idx_tup_fetch::int as fetched
           from pg_stat_xact_user_tables where relname = 'log_entries'`,
      );
      expect(rows[0]?.walked).toBe(0);
      expect(rows[0]?.fetched).toBeLessThan(2000);
    });
  });
});

describe('appendWithin', () => {
  it('BND-4: a rollback leaves no gap', async () => {
    await log.append('facts', entry('a'));
    const rolledBack = fresh.database.transaction(async (tx) => {
      const answers = await log.appendWithin(
        tx,
        'facts',
        keysOf(3, 'gone').map((key) => entry(key)),
      );
      expect(answers.map(({ offset }) => offset)).toEqual([2, 3, 4]);
      throw new Error('changed my mind');
    });
    await expect(rolledBack).rejects.toThrow('changed my mind');
    expect(await log.append('facts', entry('b'))).toEqual({ offset: 2, existing: false });
    expect(await offsetsIn()).toEqual([1, 2]);
  });

  it('BND-4: what commits late cannot appear below what a reader has seen', async () => {
    await log.append('facts', entry('first'));
    const opened = Promise.withResolvers<void>();
    const commit = Promise.withResolvers<void>();
    const late = fresh.database.transaction(async (tx) => {
      await log.appendWithin(tx, 'facts', [entry('late')]);
      opened.resolve();
      await commit.promise;
    });
    await opened.promise;
    let answered = false;
    const early = log.append('facts', entry('early')).finally(() => {
      answered = true;
    });
    await waitUntil(async () => (await waitingForLock()) === 1);
    expect(answered).toBe(false);
    expect(await offsetsIn()).toEqual([1]);
    commit.resolve();
    await late;
    expect((await early).offset).toBe(3);
    expect((await log.read('facts')).map(({ key }) => key)).toEqual(['first', 'late', 'early']);
  });

  it('a conflict takes the whole transaction with it, also when the caller goes on', async () => {
    await log.append('facts', entry('a', 1));
    let refusal: unknown;
    // Whether the database tells of a commit that was none is its own affair.
    await fresh.database
      .transaction(async (tx) => {
        refusal = await log.appendWithin(tx, 'facts', [entry('new'), entry('a', 2)]).catch((error) => error);
      })
      .catch(() => {});
    expect(refusal).toMatchObject({ code: 'CONFLICTING_DUPLICATE' });
    const inside = log.appendWithin(fresh.database, 'facts', [entry('x', 1), entry('x', 2)]);
    await expect(inside).rejects.toMatchObject({ code: 'CONFLICTING_DUPLICATE' });
    expect((await log.read('facts')).map(({ key }) => key)).toEqual(['a']);
  });

  it('answers for duplicates, in the order of the input', async () => {
    await log.append('facts', entry('b'));
    const answers = await fresh.database.transaction((tx) =>
      log.appendWithin(
        tx,
        'facts',
        ['a', 'b', 'a', 'c'].map((key) => entry(key)),
      ),
    );
    expect(answers).toEqual([
      { offset: 2, existing: false },
      { offset: 1, existing: true },
      { offset: 2, existing: true },
      { offset: 3, existing: false },
    ]);
    expect(await log.appendWithin(fresh.database, 'facts', [])).toEqual([]);
  });
});

describe('read, find, head, trim', () => {
  it('reads after an offset, up to a limit', async () => {
    await appendAll(keysOf(5));
    const read = await log.read('facts', { after: 2, limit: 2 });
    expect(read.map(({ offset, key }) => [offset, key])).toEqual([
      [3, 'k3'],
      [4, 'k4'],
    ]);
    expect(Math.abs((read[0]?.appendedAt.getTime() ?? 0) - Date.now())).toBeLessThan(3_600_000);
    expect(await log.read('facts', { after: 5 })).toEqual([]);
    expect(await log.read('nothing')).toEqual([]);
    expect(await log.find('facts', 'none')).toBeUndefined();
    expect(await log.find('nothing', 'k1')).toBeUndefined();
  });

  it('BND-3: a key outlives its trimmed entry; offsets go on', async () => {
    await appendAll(keysOf(4500));
    expect(await log.trim('facts', 4400)).toBe(4400);
    expect(await log.head('facts')).toEqual({ first: 4401, last: 4500 });
    expect((await offsetsIn())[0]).toBe(4401);
    expect(await log.find('facts', 'k7')).toMatchObject({ offset: 7, entry: undefined });
    const again = await Promise.allSettled([
      log.append('facts', entry('k7')),
      log.append('facts', entry('k8', 'other')),
      log.append('facts', entry('k4450')),
      log.append('facts', entry('fresh')),
    ]);
    expect(again.map((o) => (o.status === 'fulfilled' ? o.value : o.reason.code))).toEqual([
      { offset: 7, existing: true },
      'CONFLICTING_DUPLICATE',
      { offset: 4450, existing: true },
      { offset: 4501, existing: false },
    ]);
    expect(await log.trim('facts', 4400)).toBe(0);
    expect(await log.trim('facts', 1_000_000)).toBe(101);
    expect(await log.append('facts', entry('more'))).toEqual({ offset: 4502, existing: false });
    expect(await log.trim('nothing', 5)).toBe(0);
  });

  it('BND-3: trims beside each other and beside appends of the same keys forget none', async () => {
    await appendAll(keysOf(3000));
    const trims = [2900, 3000, 2950].map((upTo) => log.trim('facts', upTo));
    const [dropped, answers] = await Promise.all([Promise.all(trims), appendAll(keysOf(3000))]);
    expect(dropped.reduce((sum, each) => sum + each)).toBe(3000);
    expect(await log.head('facts')).toEqual({ first: 3001, last: 3000 });
    expect(answers).toEqual(numbers(1, 3000).map((offset) => ({ offset, existing: true })));
  });
});

describe('when something is killed', () => {
  it('BND-4: SIGKILL between commits loses nothing that was acknowledged and leaves no gap', async () => {
    const script = join(import.meta.dirname, 'support/appender.ts');
    const acknowledged = new Map<string, number>();
    for (const life of numbers(1, 3)) {
      const child = spawn(process.execPath, [script, fresh.url, `life${life}`], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      let output = '';
      child.stdout.on('data', (chunk: Buffer) => {
        output += chunk.toString();
        if (output.length > 20_000) child.kill('SIGKILL');
      });
      await once(child, 'close');
      for (const line of output.split('\n').slice(0, -1)) {
        const [offset, key = ''] = line.split(' ');
        acknowledged.set(key, Number(offset));
      }
    }
    await waitUntil(async () => (await sessionsOfOthers()) === 0);
    const read = await log.read('facts', { limit: 100_000 });
    expect(read.map(({ offset }) => offset)).toEqual(numbers(1, read.length));
    const held = new Map(read.map(({ key, offset }) => [key, offset]));
    expect(acknowledged.size).toBeGreaterThan(1000);
    expect([...acknowledged].filter(([key, offset]) => held.get(key) !== offset)).toEqual([]);
  });

  it('terminated sessions: whoever was answered has an entry, each key once, no gap', async () => {
    let stop = false;
    const storm = (async () => {
      while (!stop) {
        await fresh.database
          .query(
            `select pg_terminate_backend(pid) from pg_stat_activity
            where datname = current_database() and pid <> pg_backend_pid() and query like '%log_append%' limit 1`,
          )
          .catch(() => {});
        await sleep(5);
      }
    })();
    const answered = new Map<string, number>();
    await Promise.all(
      numbers(1, 16).map(async (caller) => {
        for (const n of numbers(1, 60)) {
          const key = `${caller}-${n}`;
          for (let done = false; !done; )
            await log.append('facts', entry(key)).then(
              ({ offset }) => {
                answered.set(key, offset);
                done = true;
              },
              () => {},
            );
        }
      }),
    );
    stop = true;
    await storm;
    const read = await log.read('facts', { limit: 100_000 });
    expect(read.map(({ offset }) => offset)).toEqual(numbers(1, 960));
    expect(new Map(read.map(({ key, offset }) => [key, offset]))).toEqual(answered);
  });
});

async function waitingForLock(): Promise<number> {
  const { rows } = await fresh.database.query(
    `select count(*)::int as waiting from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock' and query like '%log_append%'`,
  );
  return rows[0]?.waiting ?? 0;
}

async function sessionsOfOthers(): Promise<number> {
  const own = fresh.database.pool.totalCount;
  const { rows } = await fresh.database.query(
    `select count(*)::int as sessions from pg_stat_activity where datname = current_database() and state is not null`,
  );
  return Math.max(0, (rows[0]?.sessions ?? 0) - own);
}

async function waitUntil(reached: () => Promise<boolean>): Promise<void> {
  while (!(await reached())) await sleep(10);
}
