import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import type { RawRow } from '../../../src/engine/database/hot-query.ts';
import { Claim, ClaimedJob, LaneRun } from '../../../src/engine/jobs/claim.ts';
import type { Failure } from '../../../src/engine/jobs/failures.ts';
import { LaneRunner } from '../../../src/engine/jobs/lane-runner.ts';

type Report = Awaited<ReturnType<ConstructorParameters<typeof LaneRunner>[0]['reporter']['report']>>;

/** A lane with three jobs, and a runner of lanes that writes down what it does. */
function harness({ laneBatch = 20, othersWait = false, more = [] as readonly number[] } = {}) {
  const did: string[] = [];
  const claim = new Claim('1', 1, 'q', 2);
  const lane = new LaneRun(claim, '5', '50', 'a lane');
  lane.jobs = [101, 102, 103].map((seq) => new ClaimedJob(claim, lane, String(seq), 'k', null, 0));
  lane.lastSeq = '103';
  const fetched: RawRow[] =
    more.length > 0
      ? [[`{${more.join()}}`, '"k"', more.map(() => 'null').join(), '0', null] as unknown as RawRow]
      : [];
  const confirmed = Promise.withResolvers<void>();
  let answer: Partial<Report> = {};
  const runner = new LaneRunner({
    ...{ worker: 'w', laneBatch },
    database: {
      run: async () => {
        did.push('fetch');
        return fetched.splice(0);
      },
    },
    settler: {
      letGo: (left) => did.push(`let go from ${left.floor}`),
      laneConfirmed: () => confirmed.promise,
      dealtWith: () => did.push('dealt with'),
    },
    reporter: {
      report: async () => {
        did.push('report');
        return { isLaneLetGo: false, isLaneBlocked: false, ...answer } as Report;
      },
    },
    leases: { lose: () => did.push('lost') },
    slots: {
      start: (job) => did.push(`start ${job.pos}`),
      free: () => did.push('free'),
      queue: () => did.push('queue'),
      pump: () => {},
      othersWait: () => othersWait,
      onWork: () => did.push('work'),
    },
    onError: (error) => did.push(String(error)),
  });
  return {
    ...{ lane, runner, did, confirm: confirmed.resolve },
    end: () => runner.ended(lane),
    fail: (given: Partial<Report>) => {
      answer = given;
      return runner.failed({ job: lane.jobs[0] as ClaimedJob } as Failure, lane);
    },
  };
}

describe('LANE-2: a lane in its slot', () => {
  test('runs its jobs one after another, then gives the slot up', () => {
    const { runner, lane, did, end } = harness();
    runner.begin(lane);
    expect(did).toEqual(['start 101']);
    end();
    end();
    expect(did).toEqual(['start 101', 'start 102', 'start 103']);
    end();
    expect(did.slice(3)).toEqual(['let go from 104', 'free']);
  });

  test('goes on with what it fetches', async () => {
    const { runner, lane, did, end } = harness({ more: [104] });
    lane.mayHaveMore = true;
    runner.begin(lane);
    for (let n = 0; n < 3; n += 1) end();
    await turn();
    expect(did.slice(3)).toEqual(['fetch', 'start 104']);
  });

  test('gives the slot up after its batch if others wait, with what it has not run', () => {
    const { runner, lane, did, end } = harness({ laneBatch: 2, othersWait: true });
    runner.begin(lane);
    end();
    end();
    expect(did).toEqual(['start 101', 'start 102', 'let go from 103', 'free']);
    expect(lane.hasMore).toBe(true);
  });

  test('starts nothing more once its lease is lost', () => {
    const { runner, lane, did, end } = harness();
    runner.begin(lane);
    lane.claim.lost = true;
    end();
    expect(did).toEqual(['start 101', 'let go from 102', 'free']);
  });
});

describe('LANE-3: a job of a lane fails', () => {
  test('what came before it is confirmed before the failure is reported', async () => {
    const { did, confirm, fail } = harness();
    const failing = fail({ outcome: 'QUEUED', isLaneLetGo: true });
    await turn();
    expect(did).toEqual([]);
    confirm();
    await failing;
    expect(did).toEqual(['report', 'dealt with', 'work']);
  });

  test('one that runs again keeps the head: the lane is let go from there', async () => {
    const { lane, did, confirm, fail } = harness();
    confirm();
    await fail({ outcome: 'QUEUED' });
    expect(did).toEqual(['report', 'let go from 101']);
    expect(lane.isHeadWaiting).toBe(true);
  });

  test('one that has ended is passed, unless it blocks the lane', async () => {
    for (const isLaneBlocked of [false, true]) {
      const { lane, did, confirm, fail } = harness();
      confirm();
      await fail({ outcome: 'DEAD_LETTER', isLaneBlocked });
      expect(did).toEqual(['report', 'let go from 102']);
      expect(lane.isHeadWaiting).toBe(isLaneBlocked);
    }
  });

  test('a report that comes too late loses the claim', async () => {
    const { did, confirm, fail } = harness();
    confirm();
    await fail({ outcome: 'LOST' });
    expect(did).toContain('lost');
  });
});
