import { Pool } from 'pg';
import { PgBoss, type WorkOptions } from 'pg-boss';
import { CALLERS, CONCURRENCY, chunks, type OpenSystem, type Payload, type System } from '../system.ts';
import type { Workload } from '../workloads.ts';

const QUEUE = 'bench';
const YEAR_IN_SECONDS = 365 * 24 * 3600;

export interface Settings {
  readonly max: number;
  readonly partition: boolean;
  readonly work: WorkOptions;
}

/** Exported for trying out other settings; the suite uses the system below. */
export async function openPgBoss(url: string, workload: Workload, settings: Settings): Promise<OpenSystem> {
  const wakeup = workload.startsWith('wakeup');
  // A NOTIFY with each insert costs enqueueing time, so only the wake-ups ask for it.
  const boss = new PgBoss({ connectionString: url, max: settings.max, useListenNotify: wakeup });
  boss.on('error', (error) => console.error('pg-boss:', error));
  await boss.start();
  await boss.createQueue(QUEUE, {
    policy: workload === 'lanes' ? 'key_strict_fifo' : 'standard',
    partition: settings.partition,
    notify: wakeup,
  });
  const observer = new Pool({ connectionString: url, max: 1 });
  const job = (payload: Payload) =>
    payload.lane === undefined ? { data: payload } : { data: payload, singletonKey: payload.lane };
  return {
    async enqueue(payload) {
      await boss.send(QUEUE, payload);
    },
    async enqueueMany(payloads) {
      await boss.insert(QUEUE, payloads.map(job));
    },
    async work(handler) {
      await boss.work<Payload>(QUEUE, settings.work, async (jobs) => {
        for (const { data } of jobs) {
          const running = handler(data);
          if (running !== undefined) await running;
        }
      });
      return () => boss.offWork(QUEUE);
    },
    async unfinished() {
      const { rows } = await observer.query<{ count: number }>(
        `select count(*)::int as count from pgboss.job
          where name = $1 and state < 'completed' and start_after <= now()`,
        [QUEUE],
      );
      return rows[0]?.count ?? Number.NaN;
    },
    async litter(dead, future) {
      const data = { index: -1 };
      for (const count of chunks(dead)) {
        await boss.insert(
          QUEUE,
          Array.from({ length: count }, () => ({ data, retryLimit: 0 })),
        );
        const jobs = await boss.fetch(QUEUE, { batchSize: count });
        await boss.fail(
          QUEUE,
          jobs.map(({ id }) => id),
        );
      }
      for (const count of chunks(future)) {
        await boss.insert(
          QUEUE,
          Array.from({ length: count }, () => ({ data, startAfter: YEAR_IN_SECONDS })),
        );
      }
    },
    async close() {
      await boss.stop({ graceful: false });
      await observer.end();
    },
  };
}

/** What was tried, and why these, stands in README.md. */
function workOptions(workload: Workload): WorkOptions {
  if (workload.startsWith('wakeup')) return { localConcurrency: 1, batchSize: CONCURRENCY };
  if (workload === 'lanes') return { localConcurrency: 1, batchSize: 2_000, burstWhenBatchFull: true };
  return { localConcurrency: 4, batchSize: 1_000, burstWhenBatchFull: true };
}

export const pgBoss: System = {
  store: 'postgres',
  bulkChunk: 5_000,
  open: (url, workload) =>
    openPgBoss(url, workload, {
      max: CALLERS,
      // A table of the queue's own drains faster, but is slower to insert into.
      partition: !workload.startsWith('enqueue'),
      work: workOptions(workload),
    }),
};
