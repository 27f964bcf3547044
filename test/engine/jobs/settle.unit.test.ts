import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, test } from 'vitest';
import type { RawRow, Value } from '../../../src/engine/database/hot-query.ts';
import { Claim, ClaimedJob, LaneRun } from '../../../src/engine/jobs/claim.ts';
import { Settler } from '../../../src/engine/jobs/settle.ts';
import { silentLogger } from '../../../src/engine/logger.ts';
import { eventually } from '../../support/eventually.ts';

/** What one statement said, by the names of `tallyman.settle`. */
interface Said {
  readonly tokens: Value;
  readonly free: Value;
  readonly lanes: Value;
  readonly firsts: Value;
  readonly lasts: Value;
  /** `{}` unless the statement names each job of a lane. */
  readonly exact: Value;
  readonly superseded: Value;
  readonly leaving: Value;
  readonly drops: Value;
}

interface Statement {
  readonly said: Said;
  answer(row?: { lost?: string[]; missing?: string[]; letGo?: string[]; requeued?: boolean }): Promise<void>;
  fail(error: Error): Promise<void>;
}

const ids = (list: readonly string[] = []) => `{${list.join()}}`;

/** A settler whose statements end when the test says so; `told` is what it told the runner. */
function harness() {
  const statements: Statement[] = [];
  const told: string[] = [];
  const run = (_: unknown, values: readonly Value[]): Promise<RawRow[]> => {
    const { promise, resolve, reject } = Promise.withResolvers<RawRow[]>();
    const [, tokens, , free, lanes, firsts, lasts, exact, superseded, , leaving, , , , drops] =
      values as Value[];
    statements.push({
      said: { tokens, free, lanes, firsts, lasts, exact, superseded, leaving, drops } as Said,
      answer: async ({ lost, missing, letGo, requeued = false } = {}) => {
        resolve([[ids(lost), ids(missing), ids(letGo), requeued ? 't' : 'f']]);
        await turn();
        await turn();
      },
      fail: async (error) => {
        reject(error);
        await turn();
        await turn();
      },
    });
    return promise;
  };
  const settler = new Settler({ run, logger: silentLogger }, 'w', 1000, {
    onLost: (claims) => {
      for (const claim of claims) claim.lost = true;
      told.push(`lost ${claims.map(({ token }) => token)}`);
    },
    onSettled: (jobs) => told.push(`settled ${jobs().map(({ pos }) => pos)}`),
    onRequeued: () => told.push('requeued'),
    onKept: (lane) => told.push(`kept ${lane.id}`),
    onRefused: async (job) => void told.push(`refused ${job.pos}`),
    onError: (error) => told.push(`error ${(error as Error).message}`),
  });
  const last = (): Statement => {
    const statement = statements.at(-1);
    if (!statement) throw new Error('no statement was sent');
    return statement;
  };
  return { settler, statements, told, last };
}

/** A claim that holds free jobs at these positions. */
function freeJobs(token: string, ...positions: number[]): ClaimedJob[] {
  const claim = new Claim(token, 1, 'q', 2);
  claim.left = positions.length;
  claim.jobs = positions.map((pos) => new ClaimedJob(claim, undefined, String(pos), 'k', null, 0));
  return claim.jobs;
}

/** A claim that holds one lane. `job` makes its jobs. */
function laneOf(token: string, id: string) {
  const claim = new Claim(token, 1, 'q', 2);
  claim.left = 1;
  const lane = new LaneRun(claim, id, `9${id}`, `key ${id}`);
  const job = (pos: number, unusual = {}) => new ClaimedJob(claim, lane, String(pos), 'k', null, 0, unusual);
  return { claim, lane, job };
}

const broken = Object.assign(new Error('gone'), { code: 'ECONNRESET' });
const refused = Object.assign(new Error('no'), { code: '22P05' });
const someAreGone = Object.assign(new Error('some'), { code: 'TM010' });

describe('batches', () => {
  test('completions of one turn share a statement; while two are under way the next gathers', async () => {
    const { settler, statements, last } = harness();
    const jobs = freeJobs('1', 1, 2, 3, 4, 5, 6);
    const complete = (...indexes: number[]) => {
      for (const i of indexes) settler.complete(jobs[i] as ClaimedJob);
      return turn();
    };
    await complete(0, 1);
    await complete(2);
    await complete(3);
    await complete(4, 5);
    expect(statements.map(({ said }) => said.free)).toEqual(['{1,2}', '{3}']);
    await statements[0]?.answer();
    expect(last().said.free).toBe('{4,5,6}');
  });

  test('a statement has at most 2000 jobs, and half of that of free ones where lanes wait', async () => {
    const { settler, statements } = harness();
    const positions = Array.from({ length: 2500 }, (_, i) => i + 1);
    for (const job of freeJobs('1', ...positions)) settler.complete(job);
    const { job } = laneOf('2', '7');
    settler.complete(job(1));
    await turn();
    const counts = statements.map(({ said }) => String(said.free).split(',').length);
    expect(counts).toEqual([1000, 1500]);
    expect(statements.map(({ said }) => said.lanes)).toEqual(['{7}', '{}']);
  });

  test('flushed resolves when nothing is pending or under way', async () => {
    const { settler, last } = harness();
    await settler.flushed();
    settler.complete(freeJobs('1', 1)[0] as ClaimedJob);
    let isFlushed = false;
    void settler.flushed().then(() => {
      isFlushed = true;
    });
    await turn();
    expect([settler.busy, isFlushed]).toEqual([true, false]);
    await last().answer();
    expect([settler.busy, isFlushed]).toEqual([false, true]);
  });
});

describe('lanes', () => {
  test('LANE-4: completions of one lane are never in two statements at once', async () => {
    const { settler, statements, last } = harness();
    const { job } = laneOf('1', '7');
    settler.complete(job(1));
    await turn();
    settler.complete(job(2));
    settler.complete(job(3));
    await turn();
    expect(statements.length).toBe(1);
    await last().answer();
    expect(last().said).toMatchObject({ lanes: '{7}', firsts: '{2}', lasts: '{3}' });
    expect(statements.length).toBe(2);
  });

  test('another lane does not wait for it', async () => {
    const { settler, statements } = harness();
    settler.complete(laneOf('1', '7').job(1));
    await turn();
    settler.complete(laneOf('2', '8').job(1));
    await turn();
    expect(statements.map(({ said }) => said.lanes)).toEqual(['{7}', '{8}']);
  });

  test('a lane is let go with its last completion, and superseded jobs are named', async () => {
    const { settler, told, last } = harness();
    const { claim, lane, job } = laneOf('1', '7');
    settler.complete(job(1, { superseded: true }));
    settler.complete(job(2));
    settler.letGo(lane);
    await turn();
    expect(last().said).toMatchObject({ lanes: '{7}', superseded: '{1}', leaving: '{7}' });
    await last().answer({ letGo: ['7'], requeued: true });
    expect([claim.left, told]).toEqual([0, ['settled 1,2', 'requeued']]);
    expect(settler.takeDrops()).toEqual(['1']);
  });

  test('a lane that a writer keeps from resting stays with this worker', async () => {
    const { settler, told, last } = harness();
    const { claim, lane } = laneOf('1', '7');
    settler.letGo(lane);
    await turn();
    await last().answer({ letGo: [] });
    expect([claim.left, told]).toEqual([1, ['settled ', 'kept 7']]);
    expect(settler.takeDrops()).toEqual([]);
  });

  test('a lane is confirmed when all that was handed in is', async () => {
    const { settler, last } = harness();
    const { lane, job } = laneOf('1', '7');
    await settler.laneConfirmed(lane);
    settler.complete(job(1));
    await turn();
    settler.complete(job(2));
    let isConfirmed = false;
    void settler.laneConfirmed(lane).then(() => {
      isConfirmed = true;
    });
    await last().answer();
    expect(isConfirmed).toBe(false);
    await last().answer();
    expect(isConfirmed).toBe(true);
  });
});

describe('claims that are done', () => {
  test('a claim goes with the statement that settles the rest of it', async () => {
    const { settler, last } = harness();
    const [first, second] = freeJobs('1', 1, 2) as [ClaimedJob, ClaimedJob];
    settler.complete(first);
    await turn();
    expect(last().said.drops).toBe('{}');
    await last().answer();
    settler.complete(second);
    await turn();
    expect(last().said.drops).toBe('{1}');
    await last().answer();
    expect(settler.takeDrops()).toEqual([]);
  });

  test('one that ended otherwise is dropped by the next statement, once', async () => {
    const { settler, last } = harness();
    const [failed] = freeJobs('1', 1) as [ClaimedJob];
    settler.dealtWith(failed.claim);
    expect(settler.drops).toEqual(['1']);
    settler.complete(freeJobs('2', 5, 6)[0] as ClaimedJob);
    await turn();
    expect([last().said.drops, settler.drops]).toEqual(['{1}', []]);
  });

  test('one that is lost is not dropped: it is another worker’s by now', () => {
    const { settler } = harness();
    const [job] = freeJobs('1', 1) as [ClaimedJob];
    job.claim.lost = true;
    settler.dealtWith(job.claim);
    expect(settler.drops).toEqual([]);
  });
});

describe('answers', () => {
  test('ENG-4: what a lost claim held is not told as settled; the others are tried again without it', async () => {
    const { settler, statements, told, last } = harness();
    for (const job of [...freeJobs('1', 1), ...freeJobs('2', 2)]) settler.complete(job);
    await turn();
    await last().answer({ lost: ['1'] });
    expect(last().said).toMatchObject({ tokens: '{2}', free: '{2}' });
    await last().answer();
    expect([told, statements.length]).toEqual([['lost 1', 'settled 2'], 2]);
  });

  test('nothing is tried again where every claim is lost', async () => {
    const { settler, statements, told, last } = harness();
    settler.complete(freeJobs('1', 1)[0] as ClaimedJob);
    await turn();
    await last().answer({ lost: ['1'] });
    expect([told, statements.length, settler.busy]).toEqual([['lost 1'], 1, false]);
  });

  test('a job that is gone (it was cancelled) is not told as settled', async () => {
    const { settler, told, last } = harness();
    for (const job of freeJobs('1', 1, 2)) settler.complete(job);
    await turn();
    await last().answer({ missing: ['2'] });
    expect(told).toEqual(['settled 1']);
  });

  test('where not all were found it names each job of a lane, at once and without an error', async () => {
    const { settler, told, last } = harness();
    settler.complete(laneOf('1', '7').job(1));
    await turn();
    expect(last().said.exact).toBe('{}');
    await last().fail(someAreGone);
    expect(last().said.exact).toBe('{1}');
    await last().answer();
    expect(told).toEqual(['settled 1']);
  });

  test('after a lost connection it asks again; what is missing then was done by the first', async () => {
    const { settler, statements, told, last } = harness();
    for (const job of freeJobs('1', 1, 2)) settler.complete(job);
    await turn();
    await last().fail(broken);
    await eventually(() => expect(statements.length).toBe(2));
    await last().answer({ missing: ['1', '2'] });
    expect(told).toEqual(['error gone', 'settled 1,2']);
  });

  test('an outage blames no job, however long it lasts', async () => {
    const { settler, statements, told, last } = harness();
    for (const job of freeJobs('1', 1, 2)) settler.complete(job);
    await turn();
    for (const attempt of [1, 2, 3]) {
      await last().fail(broken);
      await eventually(() => expect(statements.length).toBe(attempt + 1));
    }
    expect(last().said.free).toBe('{1,2}');
    await last().answer();
    expect(told).toEqual(['error gone', 'error gone', 'error gone', 'settled 1,2']);
  });
});

describe('ENG-19: what the database refuses', () => {
  const numbersIn = (cell: Value) => String(cell).match(/\d+/g)?.map(Number) ?? [];

  /** A statement names free jobs one by one, and those of a lane by the first and the last. */
  const covers = ({ free, firsts, lasts }: Said, pos: number): boolean =>
    numbersIn(free).includes(pos) ||
    numbersIn(firsts).some((first, i) => first <= pos && pos <= (numbersIn(lasts)[i] ?? first));

  /** A server that refuses every statement with this position in it. */
  async function refuse(pos: number, { statements, settler }: ReturnType<typeof harness>): Promise<void> {
    for (let next = 0; settler.busy; next += 1) {
      await eventually(() => expect(statements.length > next || !settler.busy).toBe(true));
      const statement = statements[next];
      if (!statement) return;
      if (covers(statement.said, pos)) await statement.fail(refused);
      else await statement.answer();
    }
  }

  test('ends the one job at fault; the others are settled', async () => {
    const scene = harness();
    const jobs = freeJobs('1', 1, 2, 3, 4, 5);
    for (const job of jobs) scene.settler.complete(job);
    await turn();
    await refuse(4, scene);
    const outcomes = scene.told.filter((line) => !line.startsWith('error'));
    expect(outcomes.filter((line) => line.startsWith('refused'))).toEqual(['refused 4']);
    const settled = outcomes.flatMap((line) => line.match(/^settled (.+)/)?.[1]?.split(',') ?? []);
    expect(settled.sort()).toEqual(['1', '2', '3', '5']);
    expect(jobs[0]?.claim.left).toBe(0);
    expect(scene.settler.takeDrops()).toEqual(['1']);
  });

  test('jobs of a lane around it are settled in their order', async () => {
    const scene = harness();
    const { job } = laneOf('1', '7');
    for (const pos of [1, 2, 3, 4]) scene.settler.complete(job(pos));
    await turn();
    await refuse(3, scene);
    expect(scene.told.filter((line) => !line.startsWith('error'))).toEqual([
      'settled 1,2',
      'refused 3',
      'settled 4',
    ]);
  });
});
