import { Pool } from 'pg';
import { type Db, type Job, PgBoss, type WorkOptions } from 'pg-boss';
import {
  CALLERS,
  CONCURRENCY,
  chunks,
  type OpenSystem,
  type Payload,
  type System,
  WRITING_POOL,
  type WritingHandler,
} from '../system.ts';
import { hasLanes, queuesOf, type Workload, wantsWakeup } from '../workloads.ts';

const QUEUE = 'bench';
const YEAR_IN_SECONDS = 365 * 24 * 3600;

export interface Settings {
  readonly max: number;
  readonly partition: boolean;
  readonly work: WorkOptions;
  /** Fetches again at once after each batch, full or not, instead of at the next poll. */
  readonly eager?: boolean;
  /** Writes in `effects`: in one transaction with the completion of the batch, or on a pool beside it. */
  readonly atomic?: boolean;
}

/** Exported for trying out other settings; the suite uses the system below. */
export async function openPgBoss(url: string, workload: Workload, settings: Settings): Promise<OpenSystem> {
  const wakeup = wantsWakeup(workload);
  const names = queuesOf(workload).length > 0 ? queuesOf(workload) : [QUEUE];
  // A NOTIFY with each insert costs enqueueing time, so only the wake-ups ask for it.
  const boss = new PgBoss({ connectionString: url, max: settings.max, useListenNotify: wakeup });
  boss.on('error', (error) => console.error('pg-boss:', error));
  await boss.start();
  for (const name of names)
    await boss.createQueue(name, {
      policy: hasLanes(workload) ? 'key_strict_fifo' : 'standard',
      partition: settings.partition,
      notify: wakeup,
    });
  const writer = new Pool({ connectionString: url, max: WRITING_POOL });
  const observer = new Pool({ connectionString: url, max: 1 });
  const lane = ({ lane }: Payload) => (lane === undefined ? {} : { singletonKey: lane });
  return {
    async enqueue(payload) {
      await boss.send(payload.queue ?? QUEUE, payload, lane(payload));
    },
    async enqueueMany(payloads) {
      const jobs = payloads.map((payload) => ({ data: payload, ...lane(payload) }));
      await boss.insert(QUEUE, jobs);
    },
    async enqueueIn(client, payload) {
      const db = { executeSql: (text: string, values?: unknown[]) => client.query(text, values) };
      await boss.send(QUEUE, payload, { ...lane(payload), db });
    },
    async work(handler) {
      for (const name of names) {
        let worker: string | undefined;
        worker = await boss.work<Payload>(name, settings.work, async (jobs) => {
          for (const { data } of jobs) {
            const running = handler(data);
            if (running !== undefined) await running;
          }
          if (settings.eager && worker !== undefined) boss.notifyWorker(worker);
        });
      }
      return async () => {
        for (const name of names) await boss.offWork(name);
      };
    },
    async workWithWrites(handler) {
      if (settings.atomic) await workAtomically(boss, settings.work, handler);
      else await workOnPool(boss, settings.work, writer, handler);
      return () => boss.offWork(QUEUE);
    },
    async unfinished() {
      const { rows } = await observer.query<{ count: number }>(
        `select count(*)::int as count from pgboss.job
          where name = any ($1) and state < 'completed' and start_after <= now()`,
        [names],
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
      await Promise.all([observer.end(), writer.end()]);
    },
  };
}

/** Each fetcher runs its share of the concurrency at once; its batch is completed when all of it has run. */
async function workOnPool(boss: PgBoss, options: WorkOptions, pool: Pool, handler: WritingHandler) {
  const share = CONCURRENCY / (options.localConcurrency ?? 1);
  await boss.work<Payload>(QUEUE, options, async (jobs: Job<Payload>[]) => {
    const rest = jobs.values();
    const runner = async () => {
      for (const { data } of rest) await handler(data, (text, values) => pool.query(text, values));
    };
    await Promise.all(Array.from({ length: share }, runner));
  });
}

async function workAtomically(boss: PgBoss, options: WorkOptions, handler: WritingHandler) {
  const transactional = { ...options, transactional: true } as const;
  await boss.work(QUEUE, transactional, async (jobs: Job<Payload>[], tx: Db) => {
    for (const { data } of jobs) await handler(data, (text, values) => tx.executeSql(text, values));
  });
}

/** What was tried, and why these, stands in README.md. */
function workOptions(workload: Workload): WorkOptions {
  if (workload.startsWith('wakeup') || workload.startsWith('queues'))
    return { localConcurrency: 1, batchSize: CONCURRENCY };
  if (workload === 'lanes') return { localConcurrency: 1, batchSize: 2_000, burstWhenBatchFull: true };
  // One lane gives one job a fetch.
  if (hasLanes(workload)) return { localConcurrency: 1, batchSize: 1 };
  return { localConcurrency: 4, batchSize: 1_000, burstWhenBatchFull: true };
}

const settingsFor = (workload: Workload): Settings => ({
  max: workload === 'effects' ? WRITING_POOL : CALLERS,
  // A table of the queue's own drains faster, but is slower to insert into.
  partition: !workload.startsWith('enqueue'),
  work: workOptions(workload),
  eager: workload.startsWith('lane-'),
});

export const pgBoss: System = {
  store: 'postgres',
  bulkChunk: 5_000,
  lacks: (workload) =>
    workload === 'takeover' ? 'takes the jobs of a dead worker back after 15 minutes' : undefined,
  open: (url, workload) => openPgBoss(url, workload, settingsFor(workload)),
};

export const pgBossAtomic: System = {
  ...pgBoss,
  skips: (workload) => workload !== 'effects',
  open: (url, workload) => openPgBoss(url, workload, { ...settingsFor(workload), atomic: true }),
};
