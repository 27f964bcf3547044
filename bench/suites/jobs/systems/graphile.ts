import { Logger, makeWorkerUtils, run } from 'graphile-worker';
import { Pool } from 'pg';
import { CALLERS, CONCURRENCY, chunks, type OpenSystem, type Payload, type System } from '../system.ts';

const TASK = 'bench';
const silent = new Logger(() => () => {});
const YEAR = 365 * 24 * 3600 * 1000;

type Preset = GraphileConfig.WorkerOptions;

/** Exported for trying out other settings; the suite uses the two systems below. */
export async function openGraphile(url: string, preset: Preset): Promise<OpenSystem> {
  const pgPool = new Pool({ connectionString: url, max: CALLERS });
  pgPool.on('error', console.error);
  pgPool.on('connect', (client) => client.on('error', console.error));
  const utils = await makeWorkerUtils({ pgPool, logger: silent });
  await utils.migrate();
  const spec = ({ lane, ...payload }: Payload) => ({
    identifier: TASK,
    payload: lane === undefined ? payload : { ...payload, lane },
    ...(lane === undefined ? {} : { queueName: lane }),
  });
  return {
    async enqueue(payload) {
      await utils.addJob(TASK, payload);
    },
    async enqueueMany(payloads) {
      await utils.addJobs(payloads.map(spec));
    },
    async work(handler) {
      const runner = await run({
        connectionString: url,
        logger: silent,
        noHandleSignals: true,
        crontab: '',
        taskList: { [TASK]: (payload) => handler(payload as Payload) },
        preset: { worker: { concurrentJobs: CONCURRENCY, ...preset } },
      });
      return () => runner.stop();
    },
    // Finished jobs are deleted; failed ones stay with all attempts used, future ones with a later run_at.
    async unfinished() {
      const { rows } = await pgPool.query<{ count: number }>(
        `select count(*)::int as count from graphile_worker._private_jobs
          where attempts < max_attempts and run_at <= now()`,
      );
      return rows[0]?.count ?? Number.NaN;
    },
    async litter(dead, future) {
      for (const count of chunks(dead)) {
        const jobs = await utils.addJobs(Array.from({ length: count }, () => spec({ index: -1 })));
        await utils.permanentlyFailJobs(
          jobs.map((job) => String(job.id)),
          'litter',
        );
      }
      const runAt = new Date(Date.now() + YEAR);
      for (const count of chunks(future)) {
        await utils.addJobs(Array.from({ length: count }, () => ({ ...spec({ index: -1 }), runAt })));
      }
    },
    async close() {
      await utils.release();
      await pgPool.end();
    },
  };
}

export const graphile: System = {
  store: 'postgres',
  bulkChunk: 1_000,
  slow: true,
  open: (url) => openGraphile(url, { maxPoolSize: CONCURRENCY + 2 }),
};

/** What was tried, and why these, stands in README.md. */
export const graphileTuned: System = {
  store: 'postgres',
  bulkChunk: 1_000,
  open: (url) =>
    openGraphile(url, {
      localQueue: { size: 500 },
      completeJobBatchDelay: 5,
      failJobBatchDelay: 5,
    }),
};
