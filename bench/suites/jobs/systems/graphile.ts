import { Logger, makeWorkerUtils, run, type Task } from 'graphile-worker';
import { Pool } from 'pg';
import {
  CALLERS,
  CONCURRENCY,
  chunks,
  type OpenSystem,
  type Payload,
  type System,
  WRITING_POOL,
} from '../system.ts';
import { queuesOf, type Workload } from '../workloads.ts';

const TASK = 'bench';
const silent = new Logger(() => () => {});
const YEAR = 365 * 24 * 3600 * 1000;

type Preset = GraphileConfig.WorkerOptions;

/** Exported for trying out other settings; the suite uses the two systems below. */
export async function openGraphile(url: string, workload: Workload, preset: Preset): Promise<OpenSystem> {
  // There are no queues to choose from; a worker takes the tasks it knows, so a task stands for a queue.
  const names = queuesOf(workload).length > 0 ? queuesOf(workload) : [TASK];
  const pgPool = new Pool({ connectionString: url, max: CALLERS });
  pgPool.on('error', console.error);
  pgPool.on('connect', (client) => client.on('error', console.error));
  const utils = await makeWorkerUtils({ pgPool, logger: silent });
  await utils.migrate();
  const lane = ({ lane }: Payload) => (lane === undefined ? {} : { queueName: lane });
  const spec = (payload: Payload) => ({ identifier: payload.queue ?? TASK, payload, ...lane(payload) });
  const start = async (task: Task) => {
    const runner = await run({
      connectionString: url,
      logger: silent,
      noHandleSignals: true,
      crontab: '',
      taskList: Object.fromEntries(names.map((name) => [name, task])),
      preset: { worker: { concurrentJobs: CONCURRENCY, ...preset } },
    });
    return () => runner.stop();
  };
  return {
    async enqueue(payload) {
      await utils.addJob(payload.queue ?? TASK, payload, lane(payload));
    },
    async enqueueMany(payloads) {
      await utils.addJobs(payloads.map(spec));
    },
    async enqueueIn(client, payload) {
      const values = [TASK, JSON.stringify(payload), payload.lane];
      await client.query('select graphile_worker.add_job($1, $2, queue_name => $3)', values);
    },
    work: (handler) => start((payload) => handler(payload as Payload)),
    workWithWrites: (handler) =>
      start((payload, helpers) => handler(payload as Payload, (text, values) => helpers.query(text, values))),
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

const lacks = (workload: Workload) =>
  workload === 'takeover' ? 'takes the jobs of a dead worker back after four hours' : undefined;

export const graphile: System = {
  store: 'postgres',
  bulkChunk: 1_000,
  slow: true,
  lacks,
  open: (url, workload) => openGraphile(url, workload, { maxPoolSize: CONCURRENCY + 2 }),
};

const BATCHED: Preset = { localQueue: { size: 500 }, completeJobBatchDelay: 5, failJobBatchDelay: 5 };
/**
 * A worker asks for the next job while the last is being completed, finds its lane locked, and waits for the
 * next poll.
 */
const ONE_LANE: Preset = { maxPoolSize: CONCURRENCY + 2, pollInterval: 5 };

function tuned(workload: Workload): Preset {
  if (workload.startsWith('lane-')) return ONE_LANE;
  return workload === 'effects' ? { ...BATCHED, maxPoolSize: WRITING_POOL } : BATCHED;
}

/** What was tried, and why these, stands in README.md. */
export const graphileTuned: System = {
  store: 'postgres',
  bulkChunk: 1_000,
  lacks,
  open: (url, workload) => openGraphile(url, workload, tuned(workload)),
};
