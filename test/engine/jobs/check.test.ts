import { describe, expect, test } from 'vitest';
import { examineJobs } from '../../../src/engine/jobs/check.ts';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import { type Bundle, engine, takeTurn } from '../../support/engine.ts';
import { eventually } from '../../support/eventually.ts';

const kind = defineKind<{ n: number }>({ name: 'k', handler: () => {} });

/** Each breaks the tables by hand in one way, and says what must be found. */
const faults: readonly [problem: string, sql: string][] = [
  [
    'job below the floor of its stream',
    `update tallyman.streams set cursor = 1000000, floor = 1000000 where variant = ''`,
  ],
  ['lane at rest with work', 'update tallyman.lanes set pos = null'],
  [
    'lane waits longer than its head',
    `update tallyman.lanes set pos = null, due_at = now() + interval '1 hour'`,
  ],
  ['blocked lane on its stream', 'update tallyman.lanes set blocked_at = now()'],
  ['job below the floor of its lane', 'update tallyman.lanes set floor = 1000000'],
  ['job of a lane that does not exist', 'delete from tallyman.lanes'],
  ['lane without a gate', 'delete from tallyman.lane_gates'],
  ['job of a stream that does not exist', 'update tallyman.jobs set stream = 999 where lane is null'],
  [
    'position held twice',
    `insert into tallyman.claims (token, worker, stream, expires_at, stale_at, positions, max_pos)
     select 1000 + n, 'w', stream, now() + interval '1 h', now() + interval '1 h', array[pos], pos
       from tallyman.jobs, generate_series(1, 2) n where lane is null limit 2`,
  ],
  ['claim that its stream overlooks', 'update tallyman.streams set first_token = 1000000'],
  ['floor above the cursor', 'update tallyman.streams set floor = cursor + 1'],
  ['claim of a worker that is gone', `update tallyman.claims set expires_at = now() - interval '2 minutes'`],
];

async function furnished(): Promise<Bundle> {
  const bundle = await engine();
  await bundle.tallyman.enqueueMany(kind, [
    { payload: { n: 1 } },
    { payload: { n: 2 } },
    { payload: { n: 3 } },
  ]);
  await bundle.tallyman.enqueueMany(kind, [
    { payload: { n: 4 }, lane: 'a' },
    { payload: { n: 5 }, lane: 'a' },
  ]);
  await takeTurn(bundle, 'somebody', { total: 1 });
  return bundle;
}

describe('tallyman.check()', () => {
  test.each(faults)('ENG-20: finds a %s', async (problem, sql) => {
    const bundle = await furnished();
    expect(await bundle.tallyman.check()).toEqual([]);
    await bundle.rows(sql);
    const found = await bundle.tallyman.check();
    expect(found.map((each) => each.problem)).toContain(problem);
    const findings = await examineJobs(bundle.tallyman.database);
    expect(findings.find(({ message }) => message.startsWith(problem))).toMatchObject({
      check: 'work',
      level: 'fail',
      advice: expect.any(String),
    });
    // The check at the end of every test would find it, too.
    await bundle.rows(
      'truncate tallyman.jobs, tallyman.lanes, tallyman.lane_gates, tallyman.claims, tallyman.streams',
    );
  });

  test('ENG-20: doctor tells that everything can move, and that no worker is there', async () => {
    const bundle = await furnished();
    expect(await examineJobs(bundle.tallyman.database)).toMatchObject([
      { check: 'work', level: 'ok' },
      { check: 'workers', level: 'warn', message: 'jobs are due, and no worker is present' },
    ]);
    await bundle.work({ kinds: [kind] });
    // With work to do it starts on that before it is listed.
    await eventually(async () =>
      expect(await examineJobs(bundle.tallyman.database)).toMatchObject([
        { check: 'work', level: 'ok' },
        { check: 'workers', level: 'ok', message: '1 present' },
      ]),
    );
  });
});
