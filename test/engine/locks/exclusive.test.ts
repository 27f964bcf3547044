import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { Queryable } from '../../../src/engine/database/database.ts';
import { exclusively, type Section } from '../../../src/engine/locks/exclusive.ts';
import { type FreshDatabase, freshDatabase } from '../../support/postgres.ts';

const returnDoor = 0x42425530001;
let fresh: FreshDatabase;

beforeEach(async () => {
  fresh = await freshDatabase();
  await fresh.database.query('create table marks (mark text)');
});
afterEach(() => fresh.drop());

const mark = (tx: Queryable, text: string) => tx.query('insert into marks values ($1)', [text]);
const marks = async (): Promise<string[]> =>
  (await fresh.database.query<{ mark: string }>('select mark from marks order by mark')).rows.map(
    (row) => row.mark,
  );
const enter = <T>(work: (section: Section) => Promise<T>, id: bigint | number = returnDoor) =>
  exclusively(fresh.database, id, work);
const pidOf = async (tx: Queryable): Promise<number> =>
  (await tx.query('select pg_backend_pid() as pid')).rows[0]?.pid;
const terminate = (pid: number) => fresh.database.query('select pg_terminate_backend($1, 5000)', [pid]);

/** Asks until the section is free: a server needs a moment to notice that a client is gone. */
async function enterAtLast<T>(work: (section: Section) => Promise<T>): Promise<T> {
  for (;;) {
    const outcome = await enter(work);
    if (outcome.ran) return outcome.value;
    await sleep(10);
  }
}

it('one at a time for each id; ids are 64 bits wide', async () => {
  const inside = await enter(async () => [
    await enter(async () => 'same'),
    await enter(async () => 'same, as bigint', 0x42425530001n),
    await enter(async () => 'low half only', 0x25530001),
    await enter(async () => 'other', 0x42425530002),
    await enter(async () => 'largest', 2n ** 63n - 1n),
    await enter(async () => 'smallest', -(2n ** 63n)),
  ]);
  expect(inside).toEqual({
    ran: true,
    value: [
      { ran: false },
      { ran: false },
      ...['low half only', 'other', 'largest', 'smallest'].map((value) => ({ ran: true, value })),
    ],
  });
  await expect(enter(async () => 1, 2n ** 63n)).rejects.toMatchObject({ code: 'BAD_OPTION' });
  await expect(enter(async () => 1, 1.5)).rejects.toMatchObject({ code: 'BAD_OPTION' });
});

it('is free again as soon as the work is over, well or badly', async () => {
  expect(await enter(async () => 1)).toEqual({ ran: true, value: 1 });
  await expect(enter(() => Promise.reject(new Error('no')))).rejects.toThrow('no');
  expect(await enter(async () => 2)).toEqual({ ran: true, value: 2 });
});

it('a transaction commits what it wrote, on the connection that holds the lock', async () => {
  await enter(async (section) => {
    await section.transaction((tx) => mark(tx, 'kept'));
    const thrown = section.transaction(async (tx) => {
      await mark(tx, 'thrown');
      throw new Error('no');
    });
    await expect(thrown).rejects.toThrow('no');
    const holder =
      await fresh.database.query(`select pid from pg_locks where locktype = 'advisory' and database =
      (select oid from pg_database where datname = current_database())`);
    expect(await section.transaction(pidOf)).toBe(holder.rows[0]?.pid);
  });
  expect(await marks()).toEqual(['kept']);
});

it('the connection is killed inside a transaction: nothing is committed, the signal fires, another gets in', async () => {
  const entered = Promise.withResolvers<void>();
  const goOn = Promise.withResolvers<void>();
  let reason: unknown;
  const losing = enter((section) =>
    section.transaction(async (tx) => {
      section.signal.addEventListener('abort', () => {
        reason = section.signal.reason;
      });
      await mark(tx, 'lost');
      const pid = await pidOf(tx);
      await terminate(pid);
      entered.resolve();
      await goOn.promise;
    }),
  );
  losing.catch(() => {});
  await entered.promise;
  // The loser still believes it is inside while the next one commits.
  await enterAtLast((section) => section.transaction((tx) => mark(tx, 'next')));
  goOn.resolve();
  await expect(losing).rejects.toMatchObject({ code: 'LOCK_LOST' });
  expect(reason).toMatchObject({ code: 'LOCK_LOST' });
  expect(await marks()).toEqual(['next']);
});

it('a section that lost its connection between transactions can begin no other, and is not told that all was well', async () => {
  const losing = enter(async (section) => {
    await section.transaction((tx) => mark(tx, 'before'));
    const fired = once(section.signal, 'abort');
    await terminate(await section.transaction(pidOf));
    await fired;
    const after = section.transaction((tx) => mark(tx, 'after'));
    await expect(after).rejects.toMatchObject({ code: 'LOCK_LOST' });
    return 'done';
  });
  await expect(losing).rejects.toMatchObject({ code: 'LOCK_LOST' });
  expect(await marks()).toEqual(['before']);
});

it('the process is killed inside a transaction: nothing is committed, another gets in', async () => {
  const script = join(import.meta.dirname, 'support/holder.ts');
  const child = spawn(process.execPath, [script, fresh.url, String(returnDoor)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  await once(child.stdout, 'data');
  expect(await enter(async () => 'in')).toEqual({ ran: false });
  child.kill('SIGKILL');
  await once(child, 'close');
  await enterAtLast((section) => section.transaction((tx) => mark(tx, 'next')));
  expect(await marks()).toEqual(['next']);
});

it('a failed statement that the work swallowed is not taken for a commit', async () => {
  const section = enter((section) =>
    section.transaction(async (tx) => {
      await mark(tx, 'half');
      await tx.query('select 1 / 0').catch(() => {});
    }),
  );
  await expect(section).rejects.toMatchObject({ code: 'ROLLED_BACK' });
  expect(await marks()).toEqual([]);
});

it('transactions of a section do not mix, and none outlives it', async () => {
  await enter(async (section) => {
    await section.transaction(async (tx) => {
      await mark(tx, 'outer');
      const inner = section.transaction((tx) => mark(tx, 'inner'));
      await expect(inner).rejects.toMatchObject({ code: 'SECTION_BUSY' });
    });
  });
  let forgotten: Promise<unknown> = Promise.resolve();
  let outside: Section | undefined;
  const careless = enter(async (section) => {
    outside = section;
    forgotten = section.transaction(async (tx) => {
      await mark(tx, 'forgotten');
      await tx.query('select pg_sleep(60)');
    });
    forgotten.catch(() => {});
  });
  await expect(careless).rejects.toMatchObject({ code: 'SECTION_BUSY' });
  await expect(forgotten).rejects.toThrow();
  await expect(outside?.transaction((tx) => mark(tx, 'outside'))).rejects.toMatchObject({
    code: 'LOCK_LOST',
  });
  expect(await marks()).toEqual(['outer']);
});

it("the caller's signal reaches the work, or keeps it from starting", async () => {
  const caller = new AbortController();
  const outcome = await exclusively(
    fresh.database,
    returnDoor,
    async (section) => {
      caller.abort(new Error('enough'));
      return section.signal.aborted;
    },
    { signal: caller.signal },
  );
  expect(outcome).toEqual({ ran: true, value: true });
  const late = exclusively(fresh.database, returnDoor, async () => 1, { signal: caller.signal });
  await expect(late).rejects.toThrow('enough');
});
