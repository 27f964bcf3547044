import { fileURLToPath } from 'node:url';
import { expect, onTestFinished } from 'vitest';
import { Tallyman, type TallymanOptions, type WorkerOptions } from '../../src/engine/index.ts';
import { WorkerProcess } from './chaos.ts';
import { type KindSpec, poisoned, witnessTables } from './liveness-kinds.ts';
import { migratedDatabase } from './postgres.ts';
import { until } from './until.ts';

export type ProcessOptions = Omit<WorkerOptions, 'kinds'>;

/**
 * What a killed worker held is found by its absence, within a second. The lease is longer than a live worker can be kept from the
 * processor on a busy machine: one that expired would be recovered as well, and these tests count runs and attempts.
 */
export const shortLease: ProcessOptions = {
  leaseMs: 9900,
  renewMs: 600,
  recoverIntervalMs: 500,
  pollIntervalMs: 200,
};

export interface Stage {
  readonly url: string;
  readonly tallyman: Tallyman;
  rows<R>(sql: string, values?: unknown[]): Promise<R[]>;
  /** The number that the query answers. */
  count(sql: string, values?: unknown[]): Promise<number>;
  /** Another instance on the same database, with a pool of its own. */
  another(options?: Partial<TallymanOptions>): Promise<Tallyman>;
  /** Starts a worker process, which connects through `via` if told; it is gone when the test is. */
  process(kinds: readonly KindSpec[], options?: ProcessOptions, via?: string): WorkerProcess;
  /** Starts one and waits until it is ready; answers its worker's id, too. */
  ready(
    kinds: readonly KindSpec[],
    options?: ProcessOptions,
    via?: string,
  ): Promise<{ process: WorkerProcess; id: string }>;
}

const program = fileURLToPath(new URL('./liveness-worker.ts', import.meta.url));

/** A database with the engine and the witness tables. `before` runs on the empty database. */
export async function stage({
  url: given,
  before,
  ...options
}: Partial<TallymanOptions> & {
  url?: string;
  before?: (url: string) => Promise<void>;
} = {}): Promise<Stage> {
  const { url, drop } = given ? { url: given, drop: async () => {} } : await migratedDatabase();
  await before?.(url);
  const open = (more: Partial<TallymanOptions>) =>
    Tallyman.open({ databaseUrl: url, applicationName: 'liveness test', ...more });
  const tallyman = await open({ migrate: true, ...options });
  const instances = [tallyman];
  const processes: WorkerProcess[] = [];
  onTestFinished(async () => {
    for (const process of processes) process.signal('SIGCONT');
    await Promise.all(processes.map((process) => process.kill()));
    await Promise.all(instances.map((instance) => instance.close()));
    await drop();
  });
  await tallyman.database.query(witnessTables);
  const rows = async <R>(sql: string, values?: unknown[]) =>
    (await tallyman.database.query(sql, values)).rows as R[];
  const start = (
    kinds: readonly KindSpec[],
    workerOptions: ProcessOptions = shortLease,
    via = url,
  ): WorkerProcess => {
    const process = new WorkerProcess({ url: via, options: workerOptions, program, more: kinds });
    processes.push(process);
    return process;
  };
  return {
    url,
    tallyman,
    rows,
    count: async (sql, values) => Number(Object.values((await rows<object>(sql, values))[0] ?? {})[0]),
    another: async (more = {}) => {
      const instance = await open(more);
      instances.push(instance);
      return instance;
    },
    process: start,
    ready: async (kinds, workerOptions, via) => {
      const process = start(kinds, workerOptions, via);
      return { process, id: await process.ready };
    },
  };
}

/** Waits until no job is left, with what is left in the error; then `tallyman.check()` finds nothing, either. */
export async function allEnded(stage: Stage, ms = 60_000): Promise<void> {
  try {
    await until(
      'all jobs have ended',
      async () => (await stage.rows('select 1 from tallyman.jobs limit 1')).length === 0,
      ms,
    );
  } catch (error) {
    const left = await stage.rows(
      `select id, kind, attempts, scheduled_at, last_error ->> 'message' as error from tallyman.jobs order by id limit 5`,
    );
    const total = await stage.count('select count(*) from tallyman.jobs');
    throw new Error(`${(error as Error).message}; ${total} left, the first are ${JSON.stringify(left)}`);
  }
  await noProblems(stage);
}

/** `tallyman.check()`, where it exists, finds nothing that stays. */
async function noProblems({ rows, count }: Stage): Promise<void> {
  if ((await count(`select (to_regproc('tallyman.check') is not null)::integer`)) === 0) return;
  const check = () => rows('select problem, detail from tallyman.check()');
  await until('there are no problems', async () => (await check()).length === 0).catch(() => {});
  expect(await check()).toEqual([]);
}

/**
 * Keeps `size` worker processes alive, as a supervisor would, and counts how many were ended by a job. Any other end of
 * a process is an error.
 */
export class Supervisor {
  crashes = 0;
  readonly strange: string[] = [];
  #over = false;
  readonly #start: () => WorkerProcess;

  constructor(stage: Stage, kinds: readonly KindSpec[], size: number, options: ProcessOptions = shortLease) {
    this.#start = () => stage.process(kinds, options);
    for (let n = 0; n < size; n += 1) void this.#keep();
    onTestFinished(() => this.stop());
  }

  stop(): void {
    this.#over = true;
  }

  /** Exactly so many. The end of a process may be heard of after its work was taken over. */
  async expectCrashes(n: number): Promise<void> {
    await until('the last crash is heard of', () => this.crashes >= n).catch(() => {});
    expect(this.strange).toEqual([]);
    expect(this.crashes, 'worker processes that a job ended').toBe(n);
  }

  async #keep(): Promise<void> {
    while (!this.#over) {
      const process = this.#start();
      await process.ended;
      if (this.#over) return;
      if (process.end?.startsWith(`exit ${poisoned}:`)) this.crashes += 1;
      else this.strange.push(String(process.end));
    }
  }
}

/** What a seeded test says when it fails. */
export const seeded = (seed: number): string => `seed ${seed} (set TEST_SEED=${seed} to repeat)`;
