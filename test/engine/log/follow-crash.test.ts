/**
 * Readers beside 16 writers that are killed in the middle of their transactions. TEST_LOG_SECONDS=120 for a longer run.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { Database } from '../../../src/engine/database/database.ts';
import { firstChain, type LogEntry, nextChain } from '../../../src/engine/log/entry.ts';
import { Log } from '../../../src/engine/log/log.ts';
import { freshDatabase } from '../../support/postgres.ts';
import type { Random } from '../../support/random.ts';
import { seededRandom } from '../../support/seeded-random.ts';
import { until } from '../../support/until.ts';
import type { Writers } from './support/writers.ts';

const seconds = Number(process.env.TEST_LOG_SECONDS ?? 15);
const processes = 4;
const writersOfEach = 4;
const script = join(import.meta.dirname, 'support/writers.ts');

/** What writers were told, over all their lives. */
class Answers {
  readonly offsets = new Map<string, number>();
  readonly #next = new Map<number, number>();
  /** Transactions that hold an offset and are not known to have ended. */
  readonly #open = new Set<number>();

  heard(line: string): void {
    const [what, writer = 0, n = 0, offset = 0] = line
      .split(' ')
      .map((word, i) => (i === 0 ? word : Number(word))) as [string, ...number[]];
    if (what === 'open') this.#open.add(writer);
    else this.#open.delete(writer);
    if (what !== 'answered') return;
    this.offsets.set(`${writer} ${n}`, offset);
    this.#next.set(writer, n + 1);
  }

  /** How many of these writers were killed with an open transaction; where they go on. */
  killed(writers: readonly number[]): number {
    return writers.filter((writer) => this.#open.delete(writer)).length;
  }

  from(writers: readonly number[]): Writers {
    return Object.fromEntries(writers.map((writer) => [writer, this.#next.get(writer) ?? 1]));
  }
}

/** A process with some of the writers, which another one replaces when it is killed. */
class WriterProcess {
  readonly errors: string[] = [];
  readonly #url: string;
  readonly #writers: readonly number[];
  readonly #answers: Answers;
  readonly #random: Random;
  #child: ChildProcess | undefined;
  #isReady: Promise<void> = Promise.resolve();
  #isOver: Promise<unknown> = Promise.resolve();
  #onOpen: (() => void) | undefined;
  #isEnded = false;

  constructor(url: string, writers: readonly number[], answers: Answers, random: Random) {
    this.#url = url;
    this.#writers = writers;
    this.#answers = answers;
    this.#random = random;
  }

  start(): void {
    if (this.#isEnded) return;
    const writers = JSON.stringify(this.#answers.from(this.#writers));
    const args = [script, this.#url, writers, `${this.#random.whole(2 ** 31)}`];
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    child.stderr.on('data', (text: Buffer) => this.errors.push(text.toString()));
    const lines = createInterface({ input: child.stdout });
    lines.on('line', (line) => {
      this.#answers.heard(line);
      if (line === 'ready') ready.resolve();
      if (line.startsWith('open')) this.#onOpen?.();
    });
    const ready = Promise.withResolvers<void>();
    this.#isReady = ready.promise;
    this.#child = child;
    this.#isOver = Promise.all([once(child, 'exit'), once(lines, 'close')]);
  }

  /** Kills it while one of its writers has an open transaction. Returns how many had one. */
  async kill(): Promise<number> {
    const open = Promise.withResolvers<void>();
    this.#onOpen = open.resolve;
    await Promise.race([open.promise, this.#isOver]);
    this.#onOpen = undefined;
    this.#child?.kill('SIGKILL');
    await this.#isOver;
    return this.#answers.killed(this.#writers);
  }

  async stop(): Promise<void> {
    await Promise.race([this.#isReady, this.#isOver]);
    this.#child?.kill('SIGTERM');
    await this.#isOver;
  }

  /** It is not started again, whatever calls `start`. */
  async end(): Promise<void> {
    this.#isEnded = true;
    this.#child?.kill('SIGKILL');
    await this.#isOver;
  }
}

/** Follows the stream, and looks back again and again: whatever it has seen stays as it was, and nothing comes between. */
class Follower {
  readonly seen: LogEntry[] = [];
  looks = 0;
  readonly #log: Log;
  readonly #lookBack: number;

  constructor(log: Log, lookBack: number) {
    this.#log = log;
    this.#lookBack = lookBack;
  }

  async follow(goesOn: () => boolean): Promise<void> {
    while (goesOn()) await this.look();
  }

  async look(waitMs = 100): Promise<void> {
    const last = this.seen.length;
    const after = Math.max(0, last - this.#lookBack);
    const found = await this.#log.read('facts', { after, limit: 5000, waitMs: after === last ? waitMs : 0 });
    this.looks += 1;
    for (const [i, entry] of found.entries()) {
      const { offset, key, chain } = entry;
      if (offset !== after + 1 + i)
        throw new Error(
          `looked after ${after}, having seen ${last}: found ${offset} instead of ${after + 1 + i}`,
        );
      const before = this.seen[offset - 1];
      if (before && (before.key !== key || before.chain !== chain))
        throw new Error(`offset ${offset} was "${before.key}" and is "${key}"`);
      this.seen[offset - 1] = entry;
    }
    if (after + found.length < last)
      throw new Error(`has seen ${last}, and now there is nothing behind ${after + found.length}`);
  }
}

test(
  'BND-4: readers beside 16 writers that are killed in mid-commit see no gap that fills later',
  async () => {
    const fresh = await freshDatabase();
    onTestFinished(() => fresh.drop());
    const random = seededRandom();
    const answers = new Answers();
    const writers = Array.from({ length: processes }, (_, p) =>
      Array.from({ length: writersOfEach }, (_, w) => p * writersOfEach + w),
    );
    const running = writers.map((own) => new WriterProcess(fresh.url, own, answers, random));
    for (const each of running) each.start();
    onTestFinished(async () => {
      await Promise.all(running.map((each) => each.end()));
    });

    // One goes by what it is told, the other one always looks back.
    const databases = await Promise.all(
      [0, 300].map(() => Database.connect({ url: fresh.url, poolSize: 3 })),
    );
    const logs = databases.map((database) => new Log(database));
    const [told, looking] = logs.map((log, i) => new Follower(log, i * 300)) as [Follower, Follower];
    onTestFinished(async () => {
      await Promise.all(logs.map((log) => log.stop()));
      await Promise.all(databases.map((database) => database.close()));
    });
    let isOver = false;
    const followed = Promise.all([told, looking].map((each) => each.follow(() => !isOver)));
    // Whatever it is that fails, it ends the test at once.
    const orFailed = <T>(work: Promise<T>): Promise<T> => Promise.race([work, followed.then(() => work)]);

    await orFailed(until('all write', () => answers.offsets.size > 200));
    const endsAt = performance.now() + seconds * 1000;
    const counts = { kills: 0, open: 0 };
    const killing = Promise.all(
      running.map(async (each) => {
        while (performance.now() < endsAt || counts.open < processes) {
          await sleep(random.between(200, 1700));
          counts.open += await each.kill();
          counts.kills += 1;
          each.start();
        }
      }),
    );
    await orFailed(killing);
    await orFailed(Promise.all(running.map((each) => each.stop())));
    isOver = true;
    await followed;
    for (const each of [told, looking]) await each.look(0);

    const log = new Log(fresh.database);
    const { last } = await log.head('facts');
    console.info(JSON.stringify({ seconds, last, ...counts, looks: [told.looks, looking.looks] }));
    expect(running.flatMap(({ errors }) => errors)).toEqual([]);
    expect(counts.kills).toBeGreaterThanOrEqual(processes);
    expect(counts.open).toBeGreaterThanOrEqual(processes);

    const entries: LogEntry[] = [];
    for (let page = await log.read('facts', { limit: 5000 }); page.length > 0; ) {
      entries.push(...page);
      page = await log.read('facts', { after: entries.length, limit: 5000 });
    }
    const offsets = entries.map(({ offset }) => offset);
    expect(offsets.findIndex((offset, i) => offset !== i + 1)).toBe(-1);
    expect(last).toBe(entries.length);
    const text = (all: readonly LogEntry[]) =>
      all.map(({ offset, key, chain }) => `${offset} ${key} ${chain}`);
    for (const { seen } of [told, looking]) expect(text(seen).join() === text(entries).join()).toBe(true);

    // Nobody was left without an answer: the writers' answers are the log, entry by entry.
    expect(new Map(entries.map(({ key, offset }) => [key, offset]))).toEqual(answers.offsets);
    expect(answers.offsets.size).toBe(entries.length);

    const { epoch = '' } = (await log.stream('facts')) ?? {};
    let chain = firstChain(epoch);
    for (const entry of entries) {
      chain = nextChain(chain, entry);
      if (chain !== entry.chain) throw new Error(`the chain breaks at offset ${entry.offset}`);
    }
  },
  300_000 + seconds * 1000,
);
