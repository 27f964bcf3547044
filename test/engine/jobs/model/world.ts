import { inspect } from 'node:util';
import { expect } from 'vitest';
import type { Bundle } from '../../../support/engine.ts';
import { Fleet } from './fleet.ts';
import { Model } from './model.ts';
import { compare, observe } from './observe.ts';
import { People } from './people.ts';
import { queues, type Step, workers } from './steps.ts';

/** The engine and the model side by side. After every step the two are compared. */
export class World {
  readonly #bundle: Bundle;
  readonly #model = new Model();
  readonly #people: People;
  readonly #fleet: Fleet;

  private constructor(bundle: Bundle) {
    this.#bundle = bundle;
    this.#people = new People(bundle, this.#model);
    this.#fleet = new Fleet(bundle, this.#model, this.#people);
  }

  /** Empties the tables. */
  static async create(bundle: Bundle): Promise<World> {
    await bundle.rows(
      `truncate tallyman.jobs, tallyman.lanes, tallyman.lane_gates, tallyman.claims, tallyman.history,
         tallyman.dead_letters, tallyman.dedupe_keys, tallyman.streams, tallyman.queues, tallyman.workers
         restart identity`,
    );
    const pairs = queues.flatMap((queue) => [1, 2].map((priority) => ({ queue, priority })));
    await bundle.rows('select tallyman.streams_of($1, $2)', [
      pairs.map(({ queue }) => queue),
      pairs.map(({ priority }) => priority),
    ]);
    return new World(bundle);
  }

  async run(steps: readonly Step[]): Promise<void> {
    let at = 'the drain at the end';
    try {
      for (const [i, step] of steps.entries()) {
        at = `step ${i}, ${JSON.stringify(step)}`;
        await this.#apply(step);
        await this.#compare();
      }
      at = 'the drain at the end';
      await this.#drain();
    } catch (error) {
      throw new Error(`${at}: ${told(error)}`, { cause: error });
    } finally {
      await this.#people.endAllWrites(false);
    }
  }

  async #compare(): Promise<void> {
    compare(this.#model, await observe(this.#bundle));
  }

  async #apply(step: Step): Promise<void> {
    const people = this.#people;
    const fleet = this.#fleet;
    switch (step.do) {
      case 'enqueue':
        return people.enqueue(step, step.key, step.copies, step.isDelayed);
      case 'write':
        return people.write(step.writer, step);
      case 'end write':
        return people.endWrite(step.writer, step.isCommit);
      case 'cancel':
        return void (await people.cancel(step.nth));
      case 'retry':
        return people.retry(step.nth);
      case 'cancel and retry':
        return people.cancelAndRetry(step.nth);
      case 'redrive':
        return people.redrive(step.nth, step.toHead);
      case 'unblock':
        return people.unblock(this.#model.lanes.get(`lane-${step.lane}`));
      case 'pause':
        return people.pause(queues[step.queue] ?? queues[0]);
      case 'resume':
        return people.resume(queues[step.queue] ?? queues[0]);
      case 'wait':
        return people.wait();
      case 'claim':
        return void (await fleet.claim(step));
      case 'complete':
        return fleet.complete(step.w, step.nth, step.count, step.letGo, step.isAnswerLost);
      case 'fail':
        return fleet.fail(step.w, step.nth, step.sort, step.isAnswerLost);
      case 'start':
        return fleet.start(step.w, step.nth);
      case 'start suspects':
        return this.#startSuspects(step.w);
      case 'fetch':
        return fleet.fetch(step.w, step.nth);
      case 'release':
        return fleet.release(step.w, step.nth);
      case 'release unknown':
        return fleet.releaseUnknown(step.w);
      case 'leave':
        return fleet.leave(step.w);
      case 'crash':
        return fleet.crash(step.w, step.isDelayed);
      case 'stale':
        return fleet.writeStale();
    }
  }

  /** Two suspects, one after the other, as a worker does after a crash: rare if left to chance. */
  async #startSuspects(w: number): Promise<void> {
    const request = { w, total: 1, late: true, isolated: 'suspect', queues: 7, isAnswerLost: false } as const;
    for (let i = 0; i < 2; i += 1) await this.#fleet.claim(request);
    for (const [nth, item] of this.#fleet.members[w]?.items.entries() ?? [])
      if (item.claim.isolated) await this.#fleet.start(w, nth);
  }

  /** Everybody finishes what they hold, nothing is kept back any more, and one worker runs what is left. */
  async #drain(): Promise<void> {
    await this.#people.endAllWrites(true);
    for (const queue of queues) await this.#people.resume(queue);
    for (let w = 0; w < workers; w += 1) {
      await this.#fleet.releaseUnknown(w);
      await this.#finish(w);
    }
    await this.#compare();
    for (let quiet = 0; quiet < 2; ) {
      await this.#people.wait();
      for (const lane of this.#model.lanes.values()) if (lane.blockedBy) await this.#people.unblock(lane);
      let taken = 0;
      for (const isolated of ['suspect', 'alone', undefined] as const) {
        taken += await this.#fleet.claim({
          ...{ w: 0, total: 6, late: true, isolated, queues: 7, isAnswerLost: false },
        });
        await this.#finish(0);
        await this.#compare();
      }
      quiet = taken === 0 ? quiet + 1 : 0;
    }
    for (let w = 1; w < workers; w += 1) await this.#fleet.releaseUnknown(w);
    expect(this.#model.live).toEqual([]);
    const { jobs, claims, ended } = await observe(this.#bundle);
    expect({ jobs, claims }).toEqual({ jobs: [], claims: [] });
    expect(ended.length).toBe(this.#model.jobs.size);
  }

  /** Starts and completes all that a worker has, as a worker does that nothing happens to. */
  async #finish(w: number): Promise<void> {
    const member = this.#fleet.members[w];
    while (member && member.items.length > 0) {
      if (member.items[0]?.claim.isolated) await this.#fleet.start(w, 0);
      await this.#fleet.complete(w, 0, 1000, 'no', false);
      await this.#fleet.fetch(w, 0);
      await this.#fleet.complete(w, 0, 1000, 'rest', false);
    }
  }
}

/** What differs, in full: the message of a failed expectation leaves most of it out. */
function told(error: unknown): string {
  const { message, actual, expected } = error as Error & { actual?: unknown; expected?: unknown };
  if (actual === undefined && expected === undefined) return message;
  return `${message}\n--- got\n${shown(actual)}\n--- model\n${shown(expected)}`;
}

const shown = (value: unknown): string =>
  typeof value === 'string' ? value : inspect(value, { depth: 3, breakLength: 200, maxArrayLength: null });
