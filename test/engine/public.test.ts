import { describe, expect, test } from 'vitest';
import { asTenant } from '../../src/engine/database/tenant.ts';
import { defineKind } from '../../src/engine/jobs/kind.ts';
import { type Bundle, engine } from '../support/engine.ts';

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
    const { rows } = await tx.query<{ n: number }>(
      `select count(*)::integer as n from pg_sleep(0.3), pg_stat_activity
        where datname = current_database() and query like '%cancel%' and wait_event_type = 'Lock'`,
    );
    expect(rows).toEqual([{ n: 1 }]);
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
