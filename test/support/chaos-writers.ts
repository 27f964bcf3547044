import { setTimeout as sleep } from 'node:timers/promises';
import { onTestFinished } from 'vitest';
import { TallymanError } from '../../src/engine/errors.ts';
import type { Scene } from './chaos.ts';
import type { Random } from './random.ts';

export interface LaneJob {
  readonly lane: string;
  readonly i: number;
  /** With `ctx.commit`, or plain. In one lane there are both. */
  readonly once: boolean;
}

/** The two sorts take turns: each has one of the other before and behind it. */
export const isOnce = (i: number): boolean => i % 2 === 0;

/**
 * Fills some lanes, in order, while others fill others: one by one, in bulk, and inside a transaction that also does
 * something else. Waits whenever it is further than `mayReach()` says.
 */
export class LaneWriter {
  /** Committed for certain. */
  readonly acknowledged: LaneJob[] = [];
  /** Rejected with OUTCOME_UNKNOWN: there, or not. */
  readonly unknown: LaneJob[] = [];
  readonly #scene: Scene;
  readonly #random: Random;
  readonly #next: Map<string, number>;
  readonly #ms: () => number;
  readonly #once: (i: number) => boolean;

  constructor(
    scene: Scene,
    random: Random,
    lanes: readonly string[],
    /** How long a handler takes, and which of a lane's jobs commit their effect. */
    { ms = () => 0, once = isOnce }: { ms?: () => number; once?: (i: number) => boolean } = {},
  ) {
    this.#scene = scene;
    this.#random = random;
    this.#next = new Map(lanes.map((lane) => [lane, 0]));
    this.#ms = ms;
    this.#once = once;
  }

  async write(total: number, mayReach: () => number = () => total): Promise<void> {
    let written = 0;
    while (written < total) {
      if (written >= mayReach()) {
        await sleep(5);
        continue;
      }
      const size = Math.min(total - written, this.#random.of([1, 1, 5, 40, 40]));
      written += size;
      await this.#batch(size);
    }
  }

  /** Goes on until told otherwise. */
  async writeUntil(ended: () => boolean, pauseMs: number): Promise<void> {
    while (!ended()) {
      await this.#batch(this.#random.of([1, 1, 3, 10]));
      await sleep(pauseMs);
    }
  }

  async #batch(size: number): Promise<void> {
    const jobs = Array.from({ length: size }, () => this.#nextJob());
    try {
      await this.#enqueue(jobs);
      this.acknowledged.push(...jobs);
    } catch (error) {
      if (!(error instanceof TallymanError && error.code === 'OUTCOME_UNKNOWN')) throw error;
      this.unknown.push(...jobs);
      await sleep(50);
    }
  }

  #nextJob(): LaneJob {
    const lane = this.#random.of([...this.#next.keys()]);
    const i = this.#next.get(lane) ?? 0;
    this.#next.set(lane, i + 1);
    return { lane, i, once: this.#once(i) };
  }

  async #enqueue(jobs: readonly LaneJob[]): Promise<void> {
    const { tallyman, kinds } = this.#scene;
    const [only] = jobs;
    if (jobs.length === 1 && only) {
      const { lane, i, once } = only;
      const payload = { i, ms: this.#ms() };
      await tallyman.enqueue(once ? kinds.once : kinds.plain, payload, { lane });
      return;
    }
    // Of two kinds: one transaction, in which the order of the calls is the order of the lane.
    await unknownWhenCut(() =>
      tallyman.database.transaction(async (tx) => {
        for (const run of runsOfOneKind(jobs))
          await tallyman.enqueueMany(
            run[0]?.once ? kinds.once : kinds.plain,
            run.map(({ lane, i }) => ({ payload: { i, ms: this.#ms() }, lane })),
            { tx },
          );
      }),
    );
  }
}

/** A transaction of the caller's own: what its lost answer means is the caller's to say. */
async function unknownWhenCut(work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    const text = `${(error as { code?: string }).code} ${error instanceof Error ? error.message : error}`;
    if (/ECONN|EPIPE|57P0|08\d\d\d|terminated|connection error|timeout exceeded/i.test(text))
      throw new TallymanError('OUTCOME_UNKNOWN', text, { cause: error });
    throw error;
  }
}

/** The jobs, in order, cut wherever the kind changes. */
function runsOfOneKind(jobs: readonly LaneJob[]): LaneJob[][] {
  const runs: LaneJob[][] = [];
  for (const job of jobs) {
    const last = runs.at(-1);
    if (last && last[0]?.once === job.once) last.push(job);
    else runs.push([job]);
  }
  return runs;
}

/** Lanes for `writers` writers, no lane to two of them. */
export function laneNames(lanes: number, writers: number): string[][] {
  return Array.from({ length: writers }, (_, w) =>
    Array.from({ length: lanes }, (_, l) => `lane-${l}`).filter((_, l) => l % writers === w),
  );
}

/** Keeps some loops going until `stop`, or until the test has ended, however that is. */
export function load(loops: readonly ((ended: () => boolean) => Promise<void>)[]): { stop(): Promise<void> } {
  let over = false;
  const all = Promise.all(loops.map((loop) => loop(() => over)));
  const stop = async (): Promise<void> => {
    over = true;
    await all;
  };
  onTestFinished(() => stop().catch(() => {}));
  return { stop };
}
