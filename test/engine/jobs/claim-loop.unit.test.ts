import { EventEmitter } from 'node:events';
import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import type { RawRow, Value } from '../../../src/engine/database/hot-query.ts';
import { Claim, type ClaimAnswer } from '../../../src/engine/jobs/claim.ts';
import { ClaimLoop } from '../../../src/engine/jobs/claim-loop.ts';
import type { WorkerEvents } from '../../../src/engine/jobs/events.ts';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import { Leases } from '../../../src/engine/jobs/leases.ts';
import { Prefetch } from '../../../src/engine/jobs/prefetch.ts';
import { decide, type WorkerOptions } from '../../../src/engine/jobs/worker-options.ts';

/** What one claim asked for. */
interface Asked {
  readonly queues: Value;
  readonly wants: Value;
  readonly total: number;
  readonly isolated: Value;
  readonly late: boolean;
  readonly drop: Value;
}

/** What a claim found. `lanes`: so many lanes, each with `jobs` jobs; otherwise `jobs` free ones. */
interface Found {
  readonly jobs?: number;
  readonly lanes?: number;
  readonly expired?: boolean;
  readonly suspects?: boolean;
  readonly alone?: boolean;
  readonly limited?: boolean;
  readonly more?: boolean;
}

const flag = (is = false) => (is ? 't' : 'f');

let lastToken = 0;

function rowsOf({ jobs = 0, lanes, expired, suspects, alone, limited, more }: Found): RawRow[] {
  const flags = [expired, suspects, alone, limited, more].map(flag);
  const ending = [...Array<null>(11).fill(null), ...flags];
  if (jobs === 0) return [ending];
  lastToken += 1;
  const count = jobs * (lanes ?? 1);
  const numbers = Array.from({ length: count }, (_, i) => i + 1);
  const laneOf = lanes ? `{${numbers.map((n) => Math.ceil(n / jobs))}}` : null;
  const items = lanes
    ? JSON.stringify(Array.from({ length: lanes }, (_, i) => [String(i + 1), String(i + 1), `lane ${i + 1}`]))
    : null;
  const columns = [`{${numbers}}`, '"k"', numbers.map(() => '{}').join(), '0', null];
  return [[String(lastToken), '1', 'q', '2', ...columns, laneOf, items, ...flags.map(() => null)], ending];
}

/**
 * A loop whose claims end when the test says so. The runner only counts: `runner.held` is set by the test, and grows by what
 * is received.
 */
function harness(options: Partial<WorkerOptions> = {}) {
  const claims: { asked: Asked; find(found?: Found): Promise<void>; fail(error: Error): Promise<void> }[] =
    [];
  const told: string[] = [];
  const received: ClaimAnswer[] = [];
  const kinds = [defineKind({ name: 'k', queue: 'q', handler: () => {} })];
  const decided = decide({ kinds, concurrency: 10, maxPrefetch: 1000, ...options });
  const prefetch = new Prefetch(decided.concurrency, decided.maxPrefetch);
  const runner = {
    held: 0,
    quiet: true,
    pump: () => void told.push('pump'),
    leases: new Leases(new EventEmitter<WorkerEvents>()),
    settler: { flushed: async () => {}, takeDrops: (): string[] => drops.splice(0) },
  };
  const drops: string[] = [];
  const settle = async (): Promise<void> => {
    for (let i = 0; i < 3; i += 1) await turn();
  };
  const loop = new ClaimLoop({
    database: {
      run: (_, values) => {
        const { promise, resolve, reject } = Promise.withResolvers<RawRow[]>();
        const [, queues, wants, total, , isolated, , late, , , drop] = values;
        claims.push({
          // The loop turns its list of queues: a copy is what was sent.
          asked: { queues: [...(queues as string[])], wants, total, isolated, late, drop } as Asked,
          find: async (found = {}) => {
            resolve(rowsOf(found));
            await settle();
          },
          fail: async (error) => {
            reject(error);
            await settle();
          },
        });
        return promise;
      },
    },
    worker: 'w',
    options: decided,
    runner,
    prefetch,
    handBack: {
      unknown: async () => {},
      unknownClaims: async () => {
        told.push('searched');
        return false;
      },
    },
    receive: async (answer) => {
      received.push(answer);
      runner.leases.add(answer.claims);
      runner.held += answer.claims.reduce((sum, claim) => sum + claim.jobs.length, 0);
    },
    recover: async () => void told.push('recover'),
    onTrouble: (error) => void told.push(`trouble: ${(error as Error).message}`),
  });
  const last = () => {
    const claim = claims.at(-1);
    if (!claim) throw new Error('nothing was claimed');
    return claim;
  };
  /** Something may be there: resolves when the claim is under way. */
  const hint = async () => {
    loop.hint();
    await settle();
  };
  const room = async () => {
    loop.room();
    await settle();
  };
  return { loop, claims, told, received, runner, prefetch, drops, last, hint, room, settle };
}

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['performance', 'setTimeout', 'clearTimeout'] });
  // No worker claims in the first moment of its process.
  vi.advanceTimersByTime(60_000);
});
afterEach(() => {
  vi.useRealTimers();
});

/** Lets the clock run on; due timers fire. */
const later = (ms: number) => vi.advanceTimersByTimeAsync(ms);

describe('how much is claimed', () => {
  test('at first as many as can run at once', async () => {
    const { hint, last } = harness();
    await hint();
    expect(last().asked).toMatchObject({ total: 10, isolated: null });
  });

  test('then half of what may be held, as long as there is room for so much', async () => {
    const { hint, last, prefetch, runner } = harness();
    prefetch.took(1);
    expect(prefetch.target).toBe(1000);
    await hint();
    expect(last().asked.total).toBe(500);
    await last().find({ jobs: 500 });
    expect([runner.held, last().asked.total]).toEqual([500, 500]);
    runner.held = 700;
    await last().find({ jobs: 1, more: true });
    runner.held = 720;
    await last().find();
    await hint();
    expect(last().asked.total).toBe(280);
  });

  test('nothing while all that may be held is held; room for it starts a claim', async () => {
    const { hint, room, claims, runner } = harness();
    runner.held = 10;
    await hint();
    expect(claims.length).toBe(0);
    runner.held = 8;
    await room();
    expect(claims.length).toBe(0);
    runner.held = 7;
    await room();
    expect(claims[0]?.asked.total).toBe(3);
  });

  test('where items are lanes with many jobs, fewer items are asked for', async () => {
    const { hint, last, runner } = harness();
    await hint();
    await last().find({ lanes: 2, jobs: 9 });
    runner.held = 0;
    await hint();
    // The average of jobs for an item moved from 1 to 5.
    expect(last().asked.total).toBe(2);
  });

  test('ENG-13: of a queue with a limit no more than it leaves', async () => {
    const { hint, last } = harness({ queues: { q: 4, r: 7 } });
    await hint();
    const wants = Object.fromEntries(
      (last().asked.queues as string[]).map((queue, i) => [queue, (last().asked.wants as number[])[i]]),
    );
    expect(wants).toEqual({ q: 4, r: 7 });
    await last().find({ jobs: 3, more: true });
    const { queues, wants: left } = last().asked;
    expect((left as number[])[(queues as string[]).indexOf('q')]).toBe(1);
  });
});

describe('when it is claimed', () => {
  test('a claim that found less than it asked for is the last until there is a hint', async () => {
    const { loop, hint, room, claims, runner } = harness();
    await hint();
    await claims[0]?.find({ jobs: 9 });
    runner.held = 0;
    await room();
    expect([claims.length, loop.mayHaveMore]).toEqual([1, false]);
    await loop.caughtUp;
    await hint();
    expect(claims.length).toBe(2);
  });

  test('a full answer, or work in another stream, is followed by another claim while there is room', async () => {
    const { hint, claims, prefetch } = harness();
    prefetch.took(1);
    await hint();
    await claims[0]?.find({ jobs: 500 });
    await claims[1]?.find({ jobs: 1, more: true });
    expect(claims.length).toBe(3);
    await claims[2]?.find({ jobs: 498 });
    expect(claims.length).toBe(3);
  });

  test('the next claim is on its way before the jobs of the last are run', async () => {
    const { hint, claims, told, prefetch } = harness();
    prefetch.took(1);
    await hint();
    const sent: number[] = [];
    const pushed = told.push.bind(told);
    told.push = (...lines) => {
      if (lines.includes('pump')) sent.push(claims.length);
      return pushed(...lines);
    };
    await claims[0]?.find({ jobs: 500 });
    expect(sent).toEqual([2]);
  });

  test('hints that come while a claim is under way are one more claim', async () => {
    const { hint, claims } = harness();
    await hint();
    await hint();
    await hint();
    expect(claims.length).toBe(1);
    await claims[0]?.find();
    expect(claims.length).toBe(2);
    await claims[1]?.find();
    expect(claims.length).toBe(2);
  });

  test('ENG-16: each queue comes first in its turn', async () => {
    const { hint, last } = harness({ queues: ['a', 'b', 'c'] });
    const firsts: unknown[] = [];
    for (let i = 0; i < 4; i += 1) {
      await hint();
      firsts.push((last().asked.queues as string[])[0]);
      await last().find();
    }
    expect(firsts).toEqual(['b', 'c', 'a', 'b']);
  });

  test('a limit that kept something back makes room with the next confirmation', async () => {
    const { loop, hint, claims, settle } = harness();
    await hint();
    await claims[0]?.find({ jobs: 1 });
    loop.confirmed();
    await settle();
    expect(claims.length).toBe(1);
    await hint();
    await claims[1]?.find({ jobs: 1, limited: true });
    loop.confirmed();
    await settle();
    expect(claims.length).toBe(3);
  });

  test('below the cursor it looks 20 ms after the last such look, and again by itself', async () => {
    const { hint, claims } = harness();
    await hint();
    await claims[0]?.find();
    await hint();
    await claims[1]?.find();
    expect(claims.map(({ asked }) => asked.late)).toEqual([true, false]);
    await later(19);
    expect(claims.length).toBe(2);
    await later(2);
    expect(claims[2]?.asked.late).toBe(true);
  });

  test('the tokens of empty claims go with the next claim, once', async () => {
    const { hint, last, drops } = harness();
    drops.push('4', '5');
    await hint();
    expect(last().asked.drop).toEqual(['4', '5']);
    await last().find();
    await hint();
    expect(last().asked.drop).toBeNull();
  });

  test('an expired lease is recovered', async () => {
    const { hint, last, told } = harness();
    await hint();
    await last().find({ expired: true });
    expect(told).toContain('recover');
  });

  test('stop waits for the claim under way, and none follows', async () => {
    const { loop, hint, claims, received } = harness();
    await hint();
    let isStopped = false;
    const stopped = loop.stop().then(() => {
      isStopped = true;
    });
    await turn();
    expect(isStopped).toBe(false);
    await claims[0]?.find({ jobs: 10, more: true });
    await stopped;
    await hint();
    expect([claims.length, received.length]).toEqual([1, 1]);
  });
});

describe('ENG-17: work of a crashed batch', () => {
  test('is claimed next, one item, before ordinary work', async () => {
    const { hint, claims } = harness();
    await hint();
    await claims[0]?.find({ suspects: true });
    expect(claims[1]?.asked).toMatchObject({ isolated: 'suspect', total: 1, late: true });
    await claims[1]?.find({ jobs: 1 });
    expect(claims[2]?.asked).toMatchObject({ isolated: null });
  });

  test('the next starts after 100 ms, or when the one before has ended', async () => {
    const { loop, hint, claims, received, settle } = harness();
    await hint();
    await claims[0]?.find({ suspects: true });
    await claims[1]?.find({ jobs: 1 });
    await claims[2]?.find({ suspects: true });
    await later(25);
    expect(claims[3]?.asked).toMatchObject({ isolated: null, late: true });
    await claims[3]?.find({ suspects: true });
    await later(74);
    expect(claims.length).toBe(4);
    await later(1);
    expect(claims[4]?.asked.isolated).toBe('suspect');
    await claims[4]?.find({ jobs: 1 });
    await claims[5]?.find({ suspects: true });
    expect(claims.length).toBe(6);
    const claimed = received.flatMap((answer) => answer.claims);
    for (const claim of claimed) loop.isolatedGone(claim);
    await settle();
    expect(claims[6]?.asked.isolated).toBe('suspect');
  });

  test('what was no isolated item starts no claim when it ends', async () => {
    const { loop, claims, settle } = harness();
    loop.isolatedGone(new Claim('1', 1, 'q', 2));
    await settle();
    expect(claims.length).toBe(0);
  });
});

describe('offers to claim in the commit of an enqueue', () => {
  const nothingWaits = { suspect: false, alone: false };
  const answer: ClaimAnswer = {
    ...{ items: [], claims: [], expired: false, limited: false, more: false, waiting: nothingWaits },
  };

  test('an idle worker takes them, and claims nothing meanwhile', async () => {
    const { loop, hint, claims, received, settle } = harness();
    const claimant = loop.offer('q', 'k', 1);
    expect(claimant).toMatchObject({ worker: 'w', leaseMs: 60_000, staleMs: 120_000 });
    expect(loop.offer('q', 'k', 1)).toBeUndefined();
    await hint();
    expect(claims.length).toBe(0);
    claimant?.answer(answer);
    await settle();
    expect([received, claims.length]).toEqual([[answer], 1]);
  });

  test.each([
    { what: 'another queue', queue: 'x', kind: 'k', jobs: 1 },
    { what: 'an unknown kind', queue: 'q', kind: 'x', jobs: 1 },
    { what: 'more jobs than may be held', queue: 'q', kind: 'k', jobs: 11 },
  ])('not for $what', ({ queue, kind, jobs }) => {
    expect(harness().loop.offer(queue, kind, jobs)).toBeUndefined();
  });

  test('not beyond the limit of its queue', () => {
    const { loop } = harness({ queues: { q: 2 } });
    expect(loop.offer('q', 'k', 3)).toBeUndefined();
    expect(loop.offer('q', 'k', 2)).toBeDefined();
  });

  test('not while it is busy, is claiming, or has isolated work waiting', async () => {
    const { loop, hint, last, runner } = harness();
    runner.quiet = false;
    expect(loop.offer('q', 'k', 1)).toBeUndefined();
    runner.quiet = true;
    await hint();
    expect(loop.offer('q', 'k', 1)).toBeUndefined();
    await last().find({ suspects: true });
    await last().find();
    await last().find({ suspects: true });
    expect(loop.offer('q', 'k', 1)).toBeUndefined();
  });

  test('one that was refused is not repeated before the next poll', async () => {
    const { loop, settle } = harness({ pollIntervalMs: 1000 });
    loop.offer('q', 'k', 1)?.answer('refused');
    await settle();
    expect(loop.offer('q', 'k', 1)).toBeUndefined();
    await later(1000);
    expect(loop.offer('q', 'k', 1)).toBeDefined();
  });
});

describe('ENG-18: answers that were lost', () => {
  const broken = Object.assign(new Error('reset'), { code: 'ECONNRESET' });

  test('unknown claims are looked for before every claim for 20 s', async () => {
    const { hint, last, told } = harness();
    await hint();
    expect(told).not.toContain('searched');
    await last().fail(broken);
    expect(told).toEqual(['trouble: reset']);
    const searched = () => told.filter((line) => line === 'searched').length;
    await hint();
    await last().find();
    await later(19_000);
    await hint();
    await last().find();
    const before = searched();
    expect(before).toBeGreaterThanOrEqual(2);
    await later(1500);
    await hint();
    await last().find();
    expect(searched()).toBe(before);
  });

  test('an error of the statement is told, and nothing is looked for', async () => {
    const { hint, last, told } = harness();
    await hint();
    await last().fail(Object.assign(new Error('wrong'), { code: '42P01' }));
    await hint();
    expect(told).toEqual(['trouble: wrong']);
  });

  test('so is an offer whose answer was lost', async () => {
    const { loop, hint, told, settle } = harness();
    loop.offer('q', 'k', 1)?.answer('unknown');
    await settle();
    await hint();
    expect(told).toEqual(['searched']);
  });
});
