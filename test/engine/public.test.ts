import { describe, expect, onTestFinished, test } from 'vitest';
import { asTenant } from '../../src/engine/database/tenant.ts';
import { defineKind } from '../../src/engine/jobs/kind.ts';
import { type Bundle, engine, until } from '../support/engine.ts';

/*
 * The engine's public functions in SQL, as the owner of the tables calls them, and as the role of one tenant.
 */

async function registered(): Promise<Bundle> {
  const bundle = await engine();
  await bundle.rows(
    `select tallyman.register_kind('push', queue => 'labels', priority => 1, max_attempts => 8)`,
  );
  await bundle.rows(`select tallyman.register_kind('greet', lane_policy => 'block', latest_only => true)`);
  return bundle;
}

const many = (bundle: Bundle, jobs: readonly object[], more = ''): Promise<Record<string, unknown>[]> =>
  bundle.rows(`select n, id, existing from tallyman.enqueue_many($1${more})`, [JSON.stringify(jobs)]);

describe('enqueue_many', () => {
  test('enqueues jobs of several kinds at once, and what is left out comes from the kind', async () => {
    const bundle = await registered();
    const answers = await many(
      bundle,
      [
        { kind: 'push', payload: { a: 1 }, lane: 'label:1' },
        { kind: 'greet', lane: 'hall' },
        { kind: 'push', payload: [2], queue: 'other', priority: 3, max_attempts: 2, delay: '1 hour' },
      ],
      `, tenant_id => 'acme', correlation_id => 'c1'`,
    );
    expect(answers.map(({ n, existing }) => ({ n, existing }))).toEqual(
      [1, 2, 3].map((n) => ({ n, existing: false })),
    );
    const jobs = await Promise.all(answers.map(({ id }) => bundle.tallyman.jobs.get(String(id))));
    const shared = { tenantId: 'acme', correlationId: 'c1', status: 'QUEUED' };
    expect(jobs).toMatchObject([
      {
        ...shared,
        kind: 'push',
        payload: { a: 1 },
        queue: 'labels',
        priority: 1,
        maxAttempts: 8,
        lane: 'label:1',
      },
      { ...shared, kind: 'greet', payload: {}, queue: 'default', priority: 2, maxAttempts: 5, lane: 'hall' },
      { ...shared, kind: 'push', payload: [2], queue: 'other', priority: 3, maxAttempts: 2, lane: null },
    ]);
    expect((jobs[2]?.scheduledAt.getTime() ?? 0) - (jobs[2]?.createdAt.getTime() ?? 0)).toBe(3_600_000);
    expect((await bundle.tallyman.lanes.get('hall'))?.policy).toBe('block');
  });

  test('answers the first job where a key is taken (ENG-5)', async () => {
    const bundle = await registered();
    const job = { kind: 'push', dedupe_key: 'k' };
    const [first, second] = await many(bundle, [job, { ...job, payload: { again: true } }]);
    expect(second).toEqual({ n: 2, id: first?.id, existing: true });
    expect(await many(bundle, [])).toEqual([]);
  });

  test('refuses as enqueue does, and then nothing is written', async () => {
    const bundle = await registered();
    const refusal = async (job: object): Promise<unknown> =>
      many(bundle, [{ kind: 'push' }, job]).catch(({ code }) => code);
    expect(await refusal({ kind: 'nobody' })).toBe('TM001');
    expect(await refusal({ kind: 'push', priority: 4 })).toBe('TM002');
    expect(await refusal({ kind: 'push', max_attempts: 0 })).toBe('TM002');
    expect(await refusal({ kind: 'push', lane: 'x'.repeat(257) })).toBe('TM002');
    expect(await refusal({ kind: 'push', dedupe_key: '' })).toBe('TM002');
    expect(await refusal({ kind: 'push', delay: '-1 s' })).toBe('TM002');
    expect(await refusal({ kind: 'push', payload: 'x'.repeat(2 ** 20) })).toBe('TM003');
    expect((await bundle.tallyman.jobs.list()).items).toEqual([]);
  });
});

describe('try_enqueue_many', () => {
  test('leaves out jobs of lanes that another open transaction writes into, and waits for nobody', async () => {
    const bundle = await registered();
    const lanes = ['busy', 'free'].map((lane) => ({ kind: 'push', lane }));
    await many(bundle, lanes);
    const other = await bundle.tallyman.database.dedicated('another writer');
    onTestFinished(() => other.end());
    await other.query('begin');
    await other.query(`select tallyman.enqueue('push', lane => 'busy')`);
    const tried = () =>
      bundle.rows<{ n: number; made: boolean }>(
        'select n, id is not null as made from tallyman.try_enqueue_many($1) order by n',
        [JSON.stringify([...lanes, { kind: 'push' }])],
      );
    expect(await tried()).toEqual([
      { n: 1, made: false },
      { n: 2, made: true },
      { n: 3, made: true },
    ]);
    await other.query('rollback');
    expect((await tried()).map(({ made }) => made)).toEqual([true, true, true]);
    expect((await bundle.tallyman.jobs.list()).items).toHaveLength(7);
  });

  test('fails, and writes nothing, where a lane is being made in another open transaction', async () => {
    const bundle = await registered();
    const other = await bundle.tallyman.database.dedicated('another writer');
    onTestFinished(() => other.end());
    await many(bundle, [{ kind: 'push' }]);
    await other.query('begin');
    await other.query(`select tallyman.enqueue('push', lane => 'new')`);
    await expect(
      bundle.rows('select tallyman.try_enqueue_many($1)', [
        JSON.stringify([{ kind: 'push' }, { kind: 'push', lane: 'new' }]),
      ]),
    ).rejects.toMatchObject({ code: '55P03' });
    await other.query('rollback');
    expect((await bundle.tallyman.jobs.list()).items).toHaveLength(1);
  });
});

test('hasten lets jobs that wait run now, free ones and in lanes; due_at tells when a job may run', async () => {
  const bundle = await registered();
  const soon = await many(bundle, [
    { kind: 'push', delay: '1 hour' },
    { kind: 'push', delay: '1 hour', lane: 'l' },
    { kind: 'push', lane: 'l' },
    { kind: 'push' },
    { kind: 'push', delay: '1 hour' },
  ]);
  const ids = soon.map(({ id }) => String(id));
  const waits = async () =>
    (
      await bundle.rows<{ waits: boolean | null }>(
        `select tallyman.due_at(id) > now() + interval '50 minutes' as waits
           from unnest($1::bigint[]) with ordinality as i (id, n) order by n`,
        [[...ids, '999999']],
      )
    ).map((row) => row.waits);
  // Behind the head of its lane a job waits as long as the head.
  expect(await waits()).toEqual([true, true, true, false, true, null]);
  const hasten = (of: readonly string[]) =>
    bundle.rows<{ n: number }>('select tallyman.hasten($1) as n', [of]).then(([row]) => row?.n);
  expect(await hasten([...ids.slice(0, 4), '999999'])).toBe(2);
  expect(await hasten(ids.slice(0, 4))).toBe(0);
  expect(await waits()).toEqual([false, false, false, false, true, null]);
  const ran: string[] = [];
  const push = defineKind({
    name: 'push',
    queue: 'labels',
    handler: (_, { id }) => void ran.push(id),
  });
  await bundle.work({ kinds: [push], pollIntervalMs: 60_000 });
  await until('four have run', () => ran.length === 4);
  expect(ran.indexOf(ids[1] ?? '')).toBeLessThan(ran.indexOf(ids[2] ?? ''));
  await until('their end is written', async () => (await waits())[0] === null && (await waits())[2] === null);
  expect((await waits())[4]).toBe(true);
});

test('prepare_kind makes the queue of a kind', async () => {
  const bundle = await registered();
  await bundle.rows(`select tallyman.prepare_kind('push')`);
  expect((await bundle.tallyman.queues.list()).map(({ name }) => name)).toEqual(['labels']);
});

test('a job that is locked does not end before the transaction does', async () => {
  const bundle = await registered();
  const [job] = await bundle.rows<{ id: string }>(`select tallyman.enqueue('push') as id`);
  const there = async (id: unknown): Promise<unknown> =>
    (await bundle.rows<{ there: boolean }>('select tallyman.job_exists($1) as there', [id]))[0]?.there;
  let cancelled: Promise<void> | undefined;
  await bundle.tallyman.database.transaction(async (tx) => {
    expect((await tx.query('select tallyman.lock_job($1) as there', [job?.id])).rows).toEqual([
      { there: true },
    ]);
    cancelled = bundle.tallyman.jobs.cancel(String(job?.id));
    await until('the cancel waits for the job', async () => {
      const waiting = await bundle.rows(
        `select 1 from pg_stat_activity
          where datname = current_database() and query like '%cancel%' and wait_event_type = 'Lock'`,
      );
      return waiting.length === 1;
    });
    expect(await there(job?.id)).toBe(true);
  });
  await cancelled;
  expect(await there(job?.id)).toBe(false);
  expect(await bundle.rows('select tallyman.lock_job($1) as there', [job?.id])).toEqual([{ there: false }]);
});

test('under the role of a tenant all of them see and write rows of that tenant only', async () => {
  const bundle = await registered();
  const { database } = bundle.tallyman;
  const failing = defineKind({
    name: 'greet',
    retry: { maxAttempts: 1 },
    handler: () => Promise.reject(new Error('no')),
  });
  const dead = await Promise.all(
    ['acme', 'other'].map((tenantId) => bundle.tallyman.enqueue(failing, { tenantId }, { tenantId })),
  );
  await bundle.work({ kinds: [failing] });
  await expect.poll(async () => (await bundle.tallyman.deadLetters.list()).items.length).toBe(2);
  const [, foreign] = await many(
    bundle,
    [
      { kind: 'push', delay: '1 hour' },
      { kind: 'push', delay: '1 hour' },
    ],
    `, tenant_id => 'other'`,
  );

  await asTenant(database, 'acme', async (scope) => {
    const ask = async (sql: string, ...values: unknown[]) => (await scope.query(sql, values)).rows;
    const jobs = JSON.stringify([
      { kind: 'push', lane: 'l' },
      { kind: 'push', delay: '1 hour' },
    ]);
    const [own] = await ask(`select id from tallyman.enqueue_many($1, tenant_id => 'acme')`, jobs);
    const both = [own?.id, foreign?.id];
    expect(await ask('select tallyman.job_exists(i) as x from unnest($1::bigint[]) i', both)).toEqual([
      { x: true },
      { x: false },
    ]);
    expect(await ask('select tallyman.lock_job(i) as x from unnest($1::bigint[]) i', both)).toEqual([
      { x: true },
      { x: false },
    ]);
    const letters = dead.map(({ id }) => id);
    expect(
      await ask('select tallyman.dead_letter_exists(i) as x from unnest($1::bigint[]) i', letters),
    ).toEqual([{ x: true }, { x: false }]);
    expect(await ask(`select payload from tallyman.dead_letters_of('acme', 'greet')`)).toEqual([
      { payload: { tenantId: 'acme' } },
    ]);
    expect(await ask(`select payload from tallyman.dead_letters_of('other', 'greet')`)).toEqual([]);
    const none = {
      dead_letters: 0,
      ready: 0,
      waiting: 0,
      running: 0,
      blocked_lanes: 0,
      finished_last_minute: 0,
    };
    expect(await ask(`select * from tallyman.tenant_counts('{acme,other}')`)).toEqual([
      { ...none, tenant_id: 'acme', dead_letters: 1, ready: 1, waiting: 1 },
      { ...none, tenant_id: 'other' },
    ]);
  });
  const trespass = asTenant(database, 'acme', (scope) =>
    scope.query(`select tallyman.enqueue_many('[{"kind": "push"}]', tenant_id => 'other')`),
  );
  await expect(trespass).rejects.toThrow(/row-level security/);
});
