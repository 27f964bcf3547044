/** What a soak does to the engine: enqueues, cancels, pauses, and kills worker processes. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import {
  type EnqueueOptions,
  type Priority,
  type Queryable,
  type Tallyman,
  TallymanError,
} from '../../src/engine/index.ts';
import type { Random } from '../support/random.ts';
import { type SoakSettings, type SoakStep, soakKinds, soakQueues } from './soak-kinds.ts';

const [lanes, hotLanes] = [200, 5];
/**
 * Jobs a second into one hot lane. A lane runs one job at a time: with delays, retries, pauses and the time until what a
 * killed worker held is taken over, about 30 a second are all that it can do. Half load is half of that.
 */
const hotLaneRate = 15;

/** A lane is in one queue only: the checks know a lane by its name. */
const queueOfLane = (lane: number): string => soakQueues[lane % soakQueues.length] as string;

interface Planned {
  readonly effect: boolean;
  readonly step: SoakStep;
  readonly options: EnqueueOptions;
  readonly cancelAfterMs: number | undefined;
}

/** Enqueues and cancels jobs, and pauses queues, and writes down what it did. */
export class Driver {
  enqueued = 0;
  cancelled = 0;
  pauses = 0;
  readonly #tallyman: Tallyman;
  readonly #random: Random;
  readonly #kinds = soakKinds();
  #hotShare = 0.3;

  constructor(tallyman: Tallyman, random: Random) {
    this.#tallyman = tallyman;
    this.#random = random;
  }

  /** Jobs a second that the fleet gets done, measured with free jobs that are as long as the others. */
  async calibrate(): Promise<number> {
    const { database } = this.#tallyman;
    const jobs = 900;
    const began = performance.now();
    for (let n = 0; n < jobs; n += 300)
      await this.#enqueueMany(
        Array.from({ length: 300 }, () => ({
          ...this.#plan(),
          options: { queue: this.#random.of(soakQueues) },
          cancelAfterMs: undefined,
        })),
      );
    // The last tenth waits for retries, not for workers.
    const isDone = async () =>
      (await database.query('select 1 from tallyman.jobs offset $1 limit 1', [jobs / 10])).rows.length === 0;
    while (!(await isDone()) && performance.now() - began < 60_000) await sleep(20);
    return (jobs * 0.9 * 1000) / (performance.now() - began);
  }

  async enqueueUntil(isOver: () => boolean, rate: number): Promise<void> {
    this.#hotShare = Math.min(0.3, (hotLanes * hotLaneRate) / rate);
    const pending = new Set<Promise<void>>();
    const began = performance.now();
    let planned = 0;
    while (!isOver()) {
      await sleep(20);
      const due = ((performance.now() - began) / 1000) * rate;
      const batch: Planned[] = [];
      for (; planned < due; planned += 1) batch.push(this.#plan());
      const work = this.#enqueue(batch).finally(() => pending.delete(work));
      pending.add(work);
      // An enqueue that hangs must not pile up others without end.
      while (pending.size > 200) await Promise.race(pending);
    }
    await Promise.all(pending);
  }

  /** One queue after another, for up to a second. */
  async pauseUntil(isOver: () => boolean): Promise<void> {
    const { database, queues } = this.#tallyman;
    while (!isOver()) {
      await sleep(this.#random.between(1000, 4000));
      const queue = this.#random.of(soakQueues);
      await database.query('insert into soak.pauses (queue, since) values ($1, clock_timestamp())', [queue]);
      await queues.pause(queue);
      await sleep(this.#random.between(200, 1000));
      await queues.resume(queue);
      await database.query(
        'update soak.pauses set until = clock_timestamp() where queue = $1 and until is null',
        [queue],
      );
      this.pauses += 1;
    }
  }

  #plan(): Planned {
    const random = this.#random;
    const lane = random.chance(this.#hotShare)
      ? random.whole(hotLanes)
      : random.chance(0.5)
        ? hotLanes + random.whole(lanes - hotLanes)
        : undefined;
    const isDelayed = random.chance(lane === undefined ? 0.1 : 0.02);
    return {
      effect: random.chance(0.5),
      step: { ms: random.whole(20), failures: random.chance(0.05) ? 1 + random.whole(2) : 0 },
      options: {
        queue: lane === undefined ? random.of(soakQueues) : queueOfLane(lane),
        priority: random.whole(4) as Priority,
        ...(lane !== undefined && { lane: `soak-lane-${lane}` }),
        ...(isDelayed && { delayMs: random.whole(lane === undefined ? 3000 : 400) }),
      },
      cancelAfterMs: random.chance(0.03) ? random.of([0, 0, 5, 50, 500]) : undefined,
    };
  }

  /** Some by group commit, some in bulk, some in a transaction of the caller. */
  async #enqueue(batch: readonly Planned[]): Promise<void> {
    const how = this.#random.whole(5);
    if (how === 0) return this.#enqueueMany(batch);
    // At most one lane: a caller that locks several in calls of its own could deadlock with another, by its own fault.
    const lane = batch.find((plan) => plan.options.lane !== undefined)?.options.lane;
    const isWithin = (plan: Planned): boolean =>
      how === 1 && (plan.options.lane === undefined || plan.options.lane === lane);
    const within = batch.filter(isWithin);
    await Promise.all([
      within.length > 0 && this.#enqueueWithin(within),
      ...batch
        .filter((plan) => !isWithin(plan))
        .map(async (plan) => {
          const { id } = await this.#tallyman.enqueue(this.#kindOf(plan), plan.step, plan.options);
          await this.#wrote([{ id, plan }]);
        }),
    ]);
  }

  async #enqueueMany(batch: readonly Planned[]): Promise<void> {
    for (const effect of [true, false]) {
      const plans = batch.filter((plan) => plan.effect === effect);
      if (plans.length === 0) continue;
      const jobs = await this.#tallyman.enqueueMany(
        effect ? this.#kinds.effect : this.#kinds.plain,
        plans.map((plan) => ({ payload: plan.step, ...plan.options })),
      );
      await this.#wrote(jobs.map(({ id }, n) => ({ id, plan: plans[n] as Planned })));
    }
  }

  async #enqueueWithin(batch: readonly Planned[]): Promise<void> {
    const jobs = await this.#tallyman.database.transaction(async (tx) => {
      const written: { id: string; plan: Planned }[] = [];
      for (const plan of batch)
        written.push({
          id: (await this.#tallyman.enqueue(this.#kindOf(plan), plan.step, { ...plan.options, tx })).id,
          plan,
        });
      return written;
    });
    await this.#wrote(jobs);
  }

  #kindOf = (plan: Planned) => (plan.effect ? this.#kinds.effect : this.#kinds.plain);

  async #wrote(jobs: readonly { readonly id: string; readonly plan: Planned }[]): Promise<void> {
    await this.#tallyman.database.query(
      'insert into soak.enqueued (job, effect) select * from unnest($1::bigint[], $2::boolean[])',
      [jobs.map((job) => job.id), jobs.map((job) => job.plan.effect)],
    );
    this.enqueued += jobs.length;
    await Promise.all(
      jobs.map(async ({ id, plan }) => {
        if (plan.cancelAfterMs === undefined) return;
        await sleep(plan.cancelAfterMs);
        await this.#cancel(id);
      }),
    );
  }

  async #cancel(id: string): Promise<void> {
    try {
      await this.#tallyman.jobs.cancel(id);
    } catch (error) {
      // It has ended before.
      if (error instanceof TallymanError && error.code === 'BAD_STATE') return;
      throw error;
    }
    await this.#tallyman.database.query('insert into soak.cancelled values ($1)', [id]);
    this.cancelled += 1;
  }
}

const program = fileURLToPath(new URL('./soak-worker.ts', import.meta.url));

/** Some worker processes; one that is killed has a successor at once. */
export class SoakFleet {
  kills = 0;
  /** How those ended that nobody had killed. */
  readonly strange: string[] = [];
  #started = 0;
  readonly #all: {
    readonly number: number;
    readonly child: ChildProcess;
    readonly ready: Promise<unknown>;
  }[] = [];
  readonly #killed = new WeakSet<ChildProcess>();
  readonly #url: string;
  readonly size: number;
  readonly #leaseMs: number | undefined;
  readonly #database: Queryable;

  constructor(url: string, size: number, leaseMs: number | undefined, database: Queryable) {
    this.#url = url;
    this.size = size;
    this.#leaseMs = leaseMs;
    this.#database = database;
  }

  async start(): Promise<void> {
    for (let n = 0; n < this.size; n += 1) this.#launch();
    await this.#allReady();
  }

  /** Rejects when one ends before it is. */
  async #allReady(): Promise<void> {
    await Promise.all(this.#all.map(({ ready }) => ready));
  }

  /** Once all are ready: on a machine where a start takes longer than the time between two kills none would ever work. */
  async killOne(random: Random): Promise<void> {
    // One that ended by itself is reported as such.
    await this.#allReady().catch(() => {});
    const at = random.whole(this.#all.length);
    const [victim] = this.#all.splice(at, 1);
    if (!victim) return;
    this.#killed.add(victim.child);
    victim.child.kill('SIGKILL');
    await once(victim.child, 'exit');
    await this.#database.query('insert into soak.kills values ($1, clock_timestamp())', [victim.number]);
    this.kills += 1;
    this.#launch();
  }

  async killAll(): Promise<void> {
    await Promise.all(
      this.#all.splice(0).map(async ({ child }) => {
        if (child.exitCode !== null || child.signalCode !== null) return;
        this.#killed.add(child);
        child.kill('SIGKILL');
        await once(child, 'exit');
      }),
    );
  }

  #launch(): void {
    this.#started += 1;
    const settings: SoakSettings = { url: this.#url, process: this.#started, leaseMs: this.#leaseMs };
    const child = fork(program, [JSON.stringify(settings)], {
      execArgv: [],
      env: { ...process.env, NODE_OPTIONS: '', NODE_COMPILE_CACHE: join(tmpdir(), 'tallyman-chaos-cache') },
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    });
    let output = '';
    for (const stream of [child.stdout, child.stderr])
      stream?.on('data', (chunk: Buffer) => {
        output = (output + chunk.toString()).slice(-2000);
      });
    child.on('exit', (code, signal) => {
      if (!this.#killed.has(child))
        this.strange.push(`process ${settings.process}: ${signal ?? code}: ${output}`);
    });
    const ready = Promise.race([
      once(child, 'message'),
      once(child, 'exit').then(() => {
        throw new Error(`process ${settings.process} ended before it was ready: ${output}`);
      }),
    ]);
    ready.catch(() => {});
    this.#all.push({ number: this.#started, child, ready });
  }
}
