import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import { PermanentError } from '../../src/engine/errors.ts';
import { defineKind } from '../../src/engine/jobs/kind.ts';
import { Tallyman } from '../../src/engine/tallyman.ts';
import { Metrics, type MetricsOptions } from '../../src/observability/metrics.ts';
import { type Bundle, drained, engine, takeTurn, until } from '../support/engine.ts';
import { readExposition, sampleOf } from './exposition.ts';
import { Gate } from './gate.ts';

const soon = { maxAttempts: 2, backoff: () => 1 };
const fine = defineKind<unknown>({ name: 'fine', handler: () => {} });

function scraper(bundle: Bundle, options: MetricsOptions = {}) {
  const metrics = new Metrics(bundle.tallyman, { cacheMs: 0, process: false, ...options });
  const scrape = async () => {
    const families = readExposition(await metrics.text());
    return (name: string, labels: Record<string, string> = {}) =>
      sampleOf(families, `tallyman_${name}`, labels);
  };
  return { metrics, scrape };
}

describe('what is counted is what was done', () => {
  test('successes, retries, failures, dead letters, superseded jobs and a blocked lane', async () => {
    const bundle = await engine();
    const { metrics, scrape } = scraper(bundle);
    const flaky = defineKind<unknown>({
      name: 'flaky',
      retry: soon,
      handler: (_, { attempt }) => {
        if (attempt === 1) throw new Error('once');
      },
    });
    const wrong = defineKind<unknown>({
      name: 'wrong',
      handler: () => {
        throw new PermanentError('NO', 'never');
      },
    });
    const hopeless = defineKind<unknown>({
      name: 'hopeless',
      retry: soon,
      lane: { policy: 'block' },
      handler: () => {
        throw new Error('always');
      },
    });
    const latest = defineKind<unknown>({ name: 'latest', lane: { latestOnly: true }, handler: () => {} });
    const times = (n: number) => Array.from({ length: n }, () => ({ payload: {} }));
    await bundle.tallyman.enqueueMany(fine, times(50));
    await bundle.tallyman.enqueueMany(flaky, times(7));
    await bundle.tallyman.enqueueMany(wrong, times(3));
    await bundle.tallyman.enqueueMany(hopeless, times(2));
    for (const lane of ['a', 'b']) await bundle.tallyman.enqueue(hopeless, {}, { lane });
    for (let i = 0; i < 3; i += 1) await bundle.tallyman.enqueue(hopeless, {}, { lane: 'a' });
    for (let i = 0; i < 4; i += 1) await bundle.tallyman.enqueue(latest, {}, { lane: 'screen' });

    const worker = bundle.tallyman.worker({
      kinds: [fine, flaky, wrong, hopeless, latest],
      pollIntervalMs: 50,
    });
    metrics.observe(worker);
    metrics.observe(worker);
    let settled = 0;
    for (const event of ['succeeded', 'failed', 'dead', 'superseded'] as const)
      worker.events.on(event, () => {
        settled += 1;
      });
    await worker.start();
    await until('all have ended but those behind the block', () => settled === 50 + 7 + 3 + 4 + 4);
    await worker.stop();

    const value = await scrape();
    const outcome = (kind: string, name: string) => value('jobs_settled_total', { kind, outcome: name });
    expect(outcome('fine', 'succeeded')).toBe(50);
    expect(outcome('flaky', 'retried')).toBe(7);
    expect(outcome('flaky', 'succeeded')).toBe(7);
    expect(outcome('wrong', 'failed')).toBe(3);
    expect(outcome('hopeless', 'retried')).toBe(4);
    expect(outcome('hopeless', 'dead')).toBe(4);
    expect(outcome('latest', 'superseded')).toBe(3);
    expect(outcome('latest', 'succeeded')).toBe(1);
    expect(outcome('fine', 'discarded')).toBe(0);
    expect(value('job_duration_seconds_count', { kind: 'flaky' })).toBe(14);
    expect(value('job_duration_seconds_count', { kind: 'latest' })).toBe(1);
    // Every attempt was claimed; of lane `a`, what lay behind the head was prefetched with it, twice.
    expect(value('jobs_claimed_total')).toBeGreaterThanOrEqual(50 + 14 + 3 + 8 + 4);
    expect(value('claim_duration_seconds_count')).toBeGreaterThan(0);
    expect(value('dead_letters', { queue: 'default', kind: 'hopeless' })).toBe(4);
    expect(value('lanes_blocked', { queue: 'default' })).toBe(2);
    expect(value('queue_jobs', { queue: 'default', state: 'waiting' })).toBe(3);
    expect(value('queue_jobs', { queue: 'default', state: 'ready' })).toBe(0);
    expect(value('queue_oldest_ready_seconds', { queue: 'default' })).toBe(0);
    expect(value('database_up')).toBe(1);

    await bundle.tallyman.deadLetters.discardAll({ kind: 'hopeless' });
    expect((await scrape())('dead_letters', { queue: 'default', kind: 'hopeless' })).toBeUndefined();
  });

  test('the states of jobs, free and in lanes, and the age of the oldest', async () => {
    const bundle = await engine();
    const { scrape } = scraper(bundle);
    const other = defineKind<unknown>({ name: 'other', queue: 'other', handler: () => {} });
    const { tallyman } = bundle;
    for (let i = 0; i < 5; i += 1) await tallyman.enqueue(fine, {});
    for (let i = 0; i < 4; i += 1) await tallyman.enqueue(fine, {}, { lane: 'a' });
    await takeTurn(bundle, 'somebody', { total: 4, laneJobs: 2 });
    await tallyman.enqueue(fine, {}, { lane: 'b' });
    await tallyman.enqueue(fine, {}, { delayMs: 3_600_000 });
    await tallyman.enqueue(fine, {}, { lane: 'later', delayMs: 3_600_000 });
    await tallyman.enqueue(fine, {}, { lane: 'later' });
    await tallyman.enqueue(other, {});
    await tallyman.enqueue(other, {}, { lane: 'a' });
    await bundle.rows(
      `update tallyman.jobs set scheduled_at = now() - interval '1 hour' where kind = 'other'`,
    );
    const value = await scrape();
    const jobs = (queue: string, state: string) => value('queue_jobs', { queue, state });
    expect(jobs('default', 'running')).toBe(4);
    expect(jobs('default', 'ready')).toBe(1 + 4 + 1);
    expect(jobs('default', 'waiting')).toBe(3);
    expect(jobs('other', 'ready')).toBe(2);
    expect(jobs('other', 'running')).toBe(0);
    const age = value('queue_oldest_ready_seconds', { queue: 'other' }) ?? 0;
    expect(age).toBeGreaterThanOrEqual(3600);
    expect(age).toBeLessThan(3700);
    // The lane is claimed: its head runs, the other three come next.
    await takeTurn(bundle, 'somebody else', { total: 2 });
    const later = await scrape();
    expect(later('queue_jobs', { queue: 'default', state: 'running' })).toBe(6);
    expect(later('queue_jobs', { queue: 'default', state: 'ready' })).toBe(1 + 3);
  });

  test('beyond the limit counts are estimated, each queue on its own, and near enough', async () => {
    const bundle = await engine();
    const { scrape } = scraper(bundle, { countLimit: 500, samplePages: 40 });
    const few = defineKind<unknown>({ name: 'few', queue: 'few', handler: () => {} });
    const times = (n: number, delayMs: number) => Array.from({ length: n }, () => ({ payload: {}, delayMs }));
    for (const delayMs of [0, 3_600_000])
      for (let i = 0; i < 10; i += 1) {
        await bundle.tallyman.enqueueMany(fine, times(1000, delayMs));
        await bundle.tallyman.enqueueMany(few, times(40, delayMs));
      }
    for (let i = 0; i < 5; i += 1) {
      const value = await scrape();
      for (const state of ['ready', 'waiting']) {
        expect(value('queue_jobs', { queue: 'default', state })).toBeGreaterThan(2500);
        expect(value('queue_jobs', { queue: 'default', state })).toBeLessThan(30_000);
      }
      // It is below the limit, and not touched by the estimate for the other.
      expect(value('queue_jobs', { queue: 'few', state: 'ready' })).toBe(400);
    }
    // The whole table is in the sample: the estimate is exact.
    const { scrape: all } = scraper(bundle, { countLimit: 500, samplePages: 1_000_000 });
    const exact = await all();
    expect(exact('queue_jobs', { queue: 'default', state: 'ready' })).toBe(10_000);
    expect(exact('queue_jobs', { queue: 'default', state: 'waiting' })).toBe(10_000);
    expect(exact('queue_jobs', { queue: 'few', state: 'ready' })).toBe(400);
    expect(exact('queue_jobs', { queue: 'few', state: 'waiting' })).toBe(400);
  });

  test('leases lost are counted once, recovery and unknown kinds as often as they happen', async () => {
    const bundle = await engine();
    const { metrics, scrape } = scraper(bundle);
    let started = false;
    const slow = defineKind<unknown>({
      name: 'slow',
      handler: async (_, { signal }) => {
        started = true;
        await new Promise((_resolve, reject) => {
          signal.addEventListener('abort', () => reject(signal.reason));
        });
      },
    });
    const worker = bundle.tallyman.worker({
      kinds: [slow],
      leaseMs: 9000,
      renewMs: 200,
      recoverIntervalMs: 100,
      pollIntervalMs: 100,
    });
    metrics.observe(worker);
    await worker.start();
    await bundle.tallyman.enqueue(slow, {});
    await bundle.tallyman.enqueue(fine, {});
    await until('it runs', () => started);
    await until(
      'the unknown kind was handed over',
      async () => (await scrape())('unknown_kinds_total') === 1,
    );
    await bundle.rows(`update tallyman.claims set expires_at = now() - interval '1 second'`);
    await until(
      'the lease is lost',
      async () => (await scrape())('leases_lost_total', { kind: 'slow' }) === 1,
    );
    await until('it was taken back', async () => (await scrape())('recovered_workers_total') === 1);
    await sleep(300);
    const value = await scrape();
    expect(value('leases_lost_total', { kind: 'slow' })).toBe(1);
    expect(value('jobs_settled_total', { kind: 'slow', outcome: 'discarded' })).toBe(1);
    expect(value('recovered_items_total')).toBe(1);
  });

  test('wake-ups by source: of this process, and through LISTEN', async () => {
    const bundle = await engine();
    const { metrics, scrape } = scraper(bundle);
    metrics.observe(await bundle.work({ kinds: [fine] }));
    await bundle.tallyman.enqueue(fine, {});
    await drained(bundle);
    expect((await scrape())('wakeups_total', { source: 'local' })).toBe(1);
    const before = (await scrape())('wakeups_total', { source: 'postgres' }) ?? 0;
    await bundle.rows(`select tallyman.hint('{default}')`);
    await until(
      'the notification has come',
      async () => ((await scrape())('wakeups_total', { source: 'postgres' }) ?? 0) > before,
    );
    expect((await scrape())('wakeups_total', { source: 'poll' })).toBeUndefined();
  });

  test('HTTP by route and class of status; what is unknown has one name', async () => {
    const bundle = await engine();
    const { metrics, scrape } = scraper(bundle);
    metrics.http('GET', '/jobs/:id', 200, 0.01);
    metrics.http('GET', '/jobs/:id', 204, 0.02);
    metrics.http('POST', '/jobs', 503, 3);
    metrics.http('BREW', undefined, 404, 0.001);
    const value = await scrape();
    const count = (method: string, route: string, status: string) =>
      value('http_request_duration_seconds_count', { method, route, status });
    expect(count('GET', '/jobs/:id', '2xx')).toBe(2);
    expect(count('POST', '/jobs', '5xx')).toBe(1);
    expect(count('other', 'none', '4xx')).toBe(1);
  });

  test('a counter of another part carries the prefix and our registry', async () => {
    const bundle = await engine();
    const { metrics, scrape } = scraper(bundle);
    metrics.counter('webhooks_sent_total', 'Webhooks sent.', ['outcome']).inc({ outcome: 'a "b"\\\n' }, 3);
    expect((await scrape())('webhooks_sent_total', { outcome: 'a "b"\\\n' })).toBe(3);
  });
});

describe('scraping', () => {
  test('the process is in it, under the usual names', async () => {
    const bundle = await engine();
    const { metrics } = scraper(bundle, { process: true });
    const families = readExposition(await metrics.text());
    expect(sampleOf(families, 'process_resident_memory_bytes')).toBeGreaterThan(1e6);
    expect(metrics.contentType).toMatch(/^text\/plain; version=0\.0\.4/);
  });

  test('a hundred at once make one look, and those that follow share it', async () => {
    const bundle = await engine();
    const { metrics } = scraper(bundle, { cacheMs: 60_000 });
    const { database } = bundle.tallyman;
    let looks = 0;
    const transaction = database.transaction.bind(database);
    database.transaction = (work) => {
      looks += 1;
      return transaction(work);
    };
    await Promise.all(Array.from({ length: 100 }, () => metrics.text()));
    await metrics.text();
    expect(looks).toBe(1);
  });

  test('the database goes away and comes back: the scrape answers, says so, and keeps what it had', async () => {
    const bundle = await engine();
    const gate = await Gate.before(bundle.url);
    const tallyman = await Tallyman.open({ databaseUrl: gate.url, connectTimeoutMs: 10_000 });
    onTestFinished(() => tallyman.close());
    const { metrics, scrape } = scraper({ ...bundle, tallyman }, { patienceMs: 10_000 });
    await tallyman.enqueue(fine, {});
    expect((await scrape())('queue_jobs', { queue: 'default', state: 'ready' })).toBe(1);
    gate.shut();
    await until('it is noticed', async () => (await scrape())('database_up') === 0);
    metrics.http('GET', '/jobs', 200, 0.01);
    const away = await scrape();
    expect(away('database_up')).toBe(0);
    expect(away('queue_jobs', { queue: 'default', state: 'ready' })).toBe(1);
    expect(
      away('http_request_duration_seconds_count', { method: 'GET', route: '/jobs', status: '2xx' }),
    ).toBe(1);
    await gate.open();
    await until('it is back', async () => (await scrape())('database_up') === 1);
  });

  test('a database that accepts and says nothing does not hold the scrape', async () => {
    const bundle = await engine({ poolSize: 1 });
    const { scrape } = scraper(bundle, { patienceMs: 50 });
    const client = await bundle.tallyman.database.pool.connect();
    const value = await scrape();
    expect(value('database_up')).toBe(0);
    expect(value('database_pool_connections', { state: 'used' })).toBe(1);
    expect(value('database_pool_waiting')).toBe(1);
    expect(value('queue_jobs', { queue: 'default', state: 'ready' })).toBeUndefined();
    client.release();
    const { scrape: patiently } = scraper(bundle);
    await until('it answers again', async () => (await patiently())('database_up') === 1);
  });
});
