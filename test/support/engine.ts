import { expect, onTestFinished } from 'vitest';
import { engineComponent } from '../../src/engine/database/migrate.ts';
import { type ClaimAnswer, ClaimedJob, type ClaimRequest, claim } from '../../src/engine/jobs/claim.ts';
import type { Worker } from '../../src/engine/jobs/worker.ts';
import type { WorkerOptions } from '../../src/engine/jobs/worker-options.ts';
import { silentLogger } from '../../src/engine/logger.ts';
import { Tallyman, type TallymanOptions } from '../../src/engine/tallyman.ts';
import { migratedDatabase } from './postgres.ts';
import { until } from './until.ts';

export { until } from './until.ts';

export interface Bundle {
  readonly url: string;
  readonly tallyman: Tallyman;
  /** A started worker with short intervals; stopped when the test ends. */
  work(options: WorkerOptions): Promise<Worker>;
  rows<R>(sql: string, values?: unknown[]): Promise<R[]>;
}

/** A database, an engine on it, and an end to both when the test ends. */
export async function engine(options: Partial<TallymanOptions> = {}): Promise<Bundle> {
  const { url, drop } = await migratedDatabase([engineComponent, ...(options.components ?? [])]);
  const tallyman = await Tallyman.open({
    databaseUrl: url,
    logger: silentLogger,
    ...options,
  });
  onTestFinished(async () => {
    try {
      // What a test leaves behind may wait, but must be able to move.
      expect(await tallyman.check()).toEqual([]);
    } finally {
      await tallyman.close();
      await drop();
    }
  });
  return {
    url,
    tallyman,
    work: async (given) => {
      const worker = tallyman.worker({ pollIntervalMs: 100, stopTimeoutMs: 2000, ...given });
      await worker.start();
      return worker;
    },
    rows: async <R>(sql: string, values?: unknown[]) =>
      (await tallyman.database.query(sql, values)).rows as R[],
  };
}

/** Nothing is left to do: no job, no claim. */
export async function drained(bundle: Pick<Bundle, 'rows'>, ms = 60_000): Promise<void> {
  await until(
    'all jobs are done',
    async () => (await bundle.rows('select 1 from tallyman.jobs limit 1')).length === 0,
    ms,
  );
}

/** Takes a turn at queue `default` as a worker that exists in name only. `jobs` lists those of lanes, too. */
export async function takeTurn(
  bundle: Bundle,
  worker: string,
  more: Partial<ClaimRequest> = {},
): Promise<ClaimAnswer & { readonly jobs: readonly ClaimedJob[] }> {
  const answer = await claim(bundle.tallyman.database, {
    worker,
    queues: ['default'],
    wants: [1_000_000],
    total: 10,
    kinds: [],
    laneJobs: 10,
    late: true,
    leaseMs: 60_000,
    staleMs: 120_000,
    drop: [],
    ...more,
  });
  return {
    ...answer,
    jobs: answer.items.flatMap((item) => (item instanceof ClaimedJob ? [item] : item.jobs)),
  };
}
