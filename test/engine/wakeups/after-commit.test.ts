import { expect, test } from 'vitest';
import { wakeAfterCommit } from '../../../src/engine/database/after-commit.ts';
import { asTenant, prepareTenants } from '../../../src/engine/database/tenant.ts';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import type { Hint, Wakeup } from '../../../src/engine/wakeups/wakeup.ts';
import { type Bundle, engine, until } from '../../support/engine.ts';

/*
 * What the brokers are told, and when. The port is under test here, not a broker: it records.
 */

const any = defineKind({ name: 'any', queue: 'q', handler: () => {} });

async function recording(): Promise<{ bundle: Bundle; told: Hint[] }> {
  const told: Hint[] = [];
  const wakeup: Wakeup = {
    name: 'recording',
    start: async () => {},
    publish: async (hint) => void told.push(hint),
    status: () => ({ state: 'up' }),
    stop: async () => {},
  };
  return { bundle: await engine({ wakeups: [wakeup] }), told };
}

test('wake-ups name the job: one, the last of many, one hint for each queue', async () => {
  const {
    bundle: { tallyman },
    told,
  } = await recording();
  const { id } = await tallyman.enqueue(any, {});
  await until('it was told', () => told.length === 1);
  expect(told.splice(0)).toEqual([{ queue: 'q', jobId: id }]);
  const many = await tallyman.enqueueMany(any, [{ payload: 1 }, { payload: 2, queue: 'r' }, { payload: 3 }]);
  await until('they were told', () => told.length === 2);
  expect(told.toSorted((a, b) => String(a.queue).localeCompare(String(b.queue)))).toEqual([
    { queue: 'q', jobId: many[2]?.id },
    { queue: 'r', jobId: many[1]?.id },
  ]);
});

test('wake-ups of a transaction go out after its commit, never before, and not after a rollback', async () => {
  const {
    bundle: { tallyman },
    told,
  } = await recording();
  const { database } = tallyman;
  let id = '';
  await database.transaction(async (tx) => {
    ({ id } = await tallyman.enqueue(any, {}, { tx }));
    expect(told).toEqual([]);
  });
  expect(told.splice(0)).toEqual([{ queue: 'q', jobId: id }]);

  const failed = database.transaction(async (tx) => {
    await tallyman.enqueue(any, {}, { tx });
    throw new Error('changed my mind');
  });
  await expect(failed).rejects.toThrow('changed my mind');
  const swallowed = database.transaction(async (tx) => {
    await tallyman.enqueueMany(any, [{ payload: 1 }], { tx });
    await tx.query('select 1/0').catch(() => {});
  });
  await expect(swallowed).rejects.toMatchObject({ code: 'ROLLED_BACK' });

  await prepareTenants(database);
  await asTenant(database, 'acme', async (scope) => wakeAfterCommit(scope, [{ queue: 'scoped' }]));
  await until('the last was told', () => told.length > 0);
  expect(told).toEqual([{ queue: 'scoped' }]);
});

test('wake-ups: an existing job is not told again', async () => {
  const {
    bundle: { tallyman },
    told,
  } = await recording();
  const first = await tallyman.enqueue(any, {}, { dedupeKey: 'k' });
  await tallyman.enqueue(any, {}, { dedupeKey: 'k' });
  const last = await tallyman.enqueue(any, {}, { queue: 'last' });
  await until('the last was told', () => told.some(({ queue }) => queue === 'last'));
  expect(told).toEqual([
    { queue: 'q', jobId: first.id },
    { queue: 'last', jobId: last.id },
  ]);
});

test('wake-ups: what a schedule enqueues, in an exclusive section, and what a handler enqueues in its commit', async () => {
  const { bundle, told } = await recording();
  const { tallyman } = bundle;
  await bundle.rows(`select tallyman.register_kind('any', queue => 'q')`);
  await tallyman.schedules.upsert({ name: 's', cron: '@hourly', kind: 'any', payload: {} });
  await bundle.rows(`update tallyman.schedules set next_run_at = now() - interval '1 second'`);
  const ran = await tallyman.exclusively(77n, (section) => tallyman.schedules.runDue(section));
  const jobId = ran.ran ? ran.value[0]?.jobId : undefined;
  expect(told.splice(0)).toEqual([{ queue: 'q', jobId }]);

  let id = '';
  const parent = defineKind({
    name: 'parent',
    queue: 'parents',
    handler: (_, ctx) =>
      ctx.commit(async (tx) => {
        ({ id } = await ctx.enqueue(any, {}, { tx, queue: 'children' }));
      }),
  });
  await bundle.work({ kinds: [parent] });
  await tallyman.enqueue(parent, {});
  await until('the child was told', () => told.some(({ queue }) => queue === 'children'));
  expect(told).toContainEqual({ queue: 'children', jobId: id });
});
