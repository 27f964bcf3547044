import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type ClaimedItem, ClaimedJob, type LaneRun } from '../../../src/engine/jobs/claim.ts';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import { type Bundle, engine, takeTurn } from '../../support/engine.ts';

/**
 * Random histories of enqueue, claim, complete, fail, crash, release, cancel and late writes, each step checked against
 * a plain model: who may hold what, which job a lane must offer next, what a stale worker may change (nothing). At the
 * end everything is drained, and every job must have ended, once.
 */
const kind = defineKind<{ n: number }>({
  name: 'k',
  retry: { maxAttempts: 4, backoff: () => 0 },
  handler: () => {},
});

type Step =
  | { readonly do: 'enqueue'; readonly lane: number; readonly key: number }
  | {
      readonly do: 'claim';
      readonly w: number;
      readonly total: number;
      readonly late: boolean;
      readonly alone: boolean;
    }
  | { readonly do: 'complete' | 'fail' | 'release' | 'crash'; readonly w: number; readonly nth: number }
  | { readonly do: 'cancel'; readonly nth: number }
  | { readonly do: 'stale' };

const small = (max: number) => fc.integer({ min: 0, max });
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({ do: fc.constant('enqueue' as const), lane: small(5), key: small(20) }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant('claim' as const),
      w: small(2),
      total: fc.integer({ min: 1, max: 6 }),
      late: fc.boolean(),
      alone: fc.boolean(),
    }),
  },
  { weight: 6, arbitrary: fc.record({ do: fc.constant('complete' as const), w: small(2), nth: small(5) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('fail' as const), w: small(2), nth: small(5) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('release' as const), w: small(2), nth: small(5) }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('crash' as const), w: small(2), nth: fc.constant(0) }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('cancel' as const), nth: small(30) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('stale' as const) }) },
);

interface ModelJob {
  readonly id: string;
  readonly lane: string | undefined;
  ended: boolean;
}

class World {
  readonly jobs = new Map<string, ModelJob>();
  /** Jobs of a lane in the order they were enqueued. */
  readonly lanes = new Map<string, ModelJob[]>();
  readonly keys = new Map<string, string>();
  /** What each worker holds. A crash gives the worker a new name; what the old one held is stale. */
  readonly held = new Map<string, ClaimedItem[]>();
  readonly stale: { worker: string; item: ClaimedItem }[] = [];
  readonly names = ['w0', 'w1', 'w2'];
  readonly #bundle: Bundle;
  #births = 0;

  constructor(bundle: Bundle) {
    this.#bundle = bundle;
  }

  async apply(step: Step): Promise<void> {
    if (step.do === 'enqueue') await this.enqueue(step.lane, step.key);
    else if (step.do === 'claim') await this.claim(step.w, step.total, step.late, step.alone);
    else if (step.do === 'cancel') await this.cancel(step.nth);
    else if (step.do === 'stale') await this.writeStale();
    else if (step.do === 'crash') await this.crash(step.w);
    else {
      const worker = this.#nameOf(step.w);
      const items = this.held.get(worker) ?? [];
      const item = items[step.nth % Math.max(1, items.length)];
      if (!item) return;
      if (step.do === 'complete') await this.complete(worker, item);
      else if (step.do === 'fail') await this.fail(worker, item);
      else await this.release(worker, item);
    }
  }

  async enqueue(laneNumber: number, keyNumber: number): Promise<void> {
    const lane = laneNumber > 2 ? undefined : `lane-${laneNumber}`;
    const dedupeKey = keyNumber > 6 ? undefined : `key-${keyNumber}`;
    const answer = await this.#bundle.tallyman.enqueue(
      kind,
      { n: this.jobs.size },
      { ...(lane && { lane }), ...(dedupeKey && { dedupeKey }) },
    );
    const known = dedupeKey === undefined ? undefined : this.keys.get(dedupeKey);
    expect(answer.existing).toBe(known !== undefined);
    if (known !== undefined) return void expect(answer.id).toBe(known);
    if (dedupeKey) this.keys.set(dedupeKey, answer.id);
    const job = { id: answer.id, lane, ended: false };
    this.jobs.set(job.id, job);
    if (lane) this.lanes.set(lane, [...(this.lanes.get(lane) ?? []), job]);
  }

  async claim(w: number, total: number, late: boolean, alone: boolean): Promise<void> {
    const worker = this.#nameOf(w);
    await this.#bundle.rows('select tallyman.promote(100)');
    const { items } = await takeTurn(this.#bundle, worker, { total, late, alone, kinds: ['k'], laneJobs: 3 });
    expect(items.length).toBeLessThanOrEqual(alone ? 1 : total);
    for (const item of items) {
      const holders = [...this.held].filter(([, all]) => all.some((other) => same(other, item)));
      expect(holders.map(([name]) => name)).toEqual([]);
      if (item instanceof ClaimedJob) expect(this.jobs.get(item.id)?.ended).toBe(false);
      else this.#checkOrder(item);
    }
    this.held.set(worker, [...(this.held.get(worker) ?? []), ...items]);
  }

  /** A lane offers its first pending jobs, without a gap. */
  #checkOrder(lane: LaneRun): void {
    const pending = (this.lanes.get(lane.key) ?? []).filter((job) => !job.ended).map((job) => job.id);
    expect(lane.jobs.map((job) => job.id)).toEqual(pending.slice(0, lane.jobs.length));
  }

  async complete(worker: string, item: ClaimedItem): Promise<void> {
    const jobs = item instanceof ClaimedJob ? [item] : item.jobs.slice(item.next);
    const answer = await this.#settle(worker, item, jobs);
    expect(answer.lost).toBeNull();
    const cancelled = jobs.filter((job) => this.jobs.get(job.id)?.ended).map((job) => job.pos);
    expect((answer.missing ?? []).sort()).toEqual(cancelled.sort());
    for (const job of jobs) this.#end(job.id);
    this.#drop(worker, item);
  }

  async fail(worker: string, item: ClaimedItem): Promise<void> {
    const job = item instanceof ClaimedJob ? item : item.jobs[item.next];
    if (!job) return this.complete(worker, item);
    const failure = { id: job.id, pos: job.pos, token: job.claim.token, error: { code: 'X' }, delay_ms: 0 };
    const rows = await this.#bundle.rows<{ status: string }>(
      `select status from tallyman.fail($1, $2, 1e9)`,
      [worker, JSON.stringify([failure])],
    );
    const ended = this.jobs.get(job.id)?.ended;
    expect(rows.map((row) => row.status)).toEqual(
      ended ? [] : [expect.stringMatching(/^(QUEUED|DEAD_LETTER)$/)],
    );
    if (rows[0]?.status === 'DEAD_LETTER') this.#end(job.id);
    if (!(item instanceof ClaimedJob)) await this.#settle(worker, item, []);
    this.#drop(worker, item);
  }

  async release(worker: string, item: ClaimedItem): Promise<void> {
    await this.#bundle.rows('select tallyman.release($1, $2, $3)', [worker, [item.claim.token], [item.pos]]);
    this.#drop(worker, item);
  }

  async crash(w: number): Promise<void> {
    const worker = this.#nameOf(w);
    for (const item of this.held.get(worker) ?? []) this.stale.push({ worker, item });
    this.held.delete(worker);
    this.#births += 1;
    this.names[w] = `w${w}-${this.#births}`;
    await this.#bundle.rows(
      `update tallyman.claims set expires_at = now() - interval '1 s' where worker = $1`,
      [worker],
    );
    const recovered = await this.#bundle.rows<{ counted: string | null; status: string | null }>(
      `select counted, status from tallyman.recover('{"k": [0, 0, 0, 0]}', 1e9)`,
    );
    for (const { counted, status } of recovered) if (counted && status === 'DEAD_LETTER') this.#end(counted);
  }

  /** Whoever lost its lease changes nothing, whatever it tries. */
  async writeStale(): Promise<void> {
    for (const { worker, item } of this.stale.splice(0)) {
      const jobs = item instanceof ClaimedJob ? [item] : item.jobs;
      expect(await this.#settle(worker, item, jobs)).toEqual({ lost: [item.claim.token], missing: null });
    }
  }

  async cancel(nth: number): Promise<void> {
    const job = [...this.jobs.values()][nth % Math.max(1, this.jobs.size)];
    if (!job || job.ended) return;
    await this.#bundle.tallyman.jobs.cancel(job.id);
    this.#end(job.id);
  }

  /** Everything that is left, by one worker that completes what it gets. */
  async drain(): Promise<void> {
    for (const [worker, items] of this.held) for (const item of [...items]) await this.complete(worker, item);
    for (let quiet = 0; quiet < 2; ) {
      const before = [...this.jobs.values()].filter((job) => !job.ended).length;
      for (const alone of [false, true]) {
        await this.claim(0, 6, true, alone);
        const worker = this.#nameOf(0);
        for (const item of [...(this.held.get(worker) ?? [])]) await this.complete(worker, item);
      }
      quiet = [...this.jobs.values()].filter((job) => !job.ended).length === before ? quiet + 1 : 0;
    }
    expect([...this.jobs.values()].filter((job) => !job.ended)).toEqual([]);
    expect(await this.#bundle.rows('select * from tallyman.jobs')).toEqual([]);
    const ended = await this.#bundle.rows<{ id: string }>(
      'select id from tallyman.history union all select id from tallyman.dead_letters',
    );
    expect(ended.map((row) => row.id).sort()).toEqual([...this.jobs.keys()].sort());
  }

  async #settle(worker: string, item: ClaimedItem, jobs: readonly ClaimedJob[]) {
    const lane = item instanceof ClaimedJob ? undefined : item;
    const last = jobs.at(-1);
    const positions = jobs.map((job) => job.pos);
    const [answer] = await this.#bundle.rows<{ lost: string[] | null; missing: string[] | null }>(
      'select lost, missing from tallyman.settle($1, $2, $3, $4, $5, $6, $6, $6, null, 1e9, $7, $8, $9, null, null)',
      [
        worker,
        [item.claim.token],
        [item.claim.stream],
        lane ? [] : positions,
        lane ? jobs.map(() => lane.id) : [],
        lane ? positions : [],
        lane ? [lane.id] : null,
        lane ? [lane.pos] : [],
        lane ? [last ? String(BigInt(last.pos) + 1n) : '0'] : [],
      ],
    );
    return answer as { lost: string[] | null; missing: string[] | null };
  }

  #end(id: string): void {
    const job = this.jobs.get(id);
    if (job) job.ended = true;
  }

  #drop(worker: string, item: ClaimedItem): void {
    this.held.set(
      worker,
      (this.held.get(worker) ?? []).filter((other) => other !== item),
    );
  }

  #nameOf(w: number): string {
    return this.names[w] ?? 'w0';
  }
}

const same = (a: ClaimedItem, b: ClaimedItem): boolean =>
  a instanceof ClaimedJob
    ? b instanceof ClaimedJob && a.id === b.id
    : !(b instanceof ClaimedJob) && a.id === b.id;

describe('the engine against a model', () => {
  test('ENG-2, ENG-4, ENG-5, ENG-10, LANE-1, LANE-3, LANE-4: random histories end as the model says', async () => {
    const bundle = await engine();
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 80, size: 'max' }), async (steps) => {
        await bundle.rows(
          `truncate tallyman.jobs, tallyman.lanes, tallyman.claims, tallyman.history, tallyman.dead_letters,
             tallyman.dedupe_keys, tallyman.streams restart identity; `,
        );
        await bundle.rows(`select tallyman.streams_of('{default}', '{2}')`);
        const world = new World(bundle);
        for (const step of steps) await world.apply(step);
        await world.drain();
      }),
      { numRuns: 40, endOnFailure: false, interruptAfterTimeLimit: 120_000 },
    );
  }, 240_000);
});
