import pg from 'pg';
import { expect, test } from 'vitest';
import { fetchMore, LaneRun } from '../../../src/engine/jobs/claim.ts';
import { defineKind } from '../../../src/engine/jobs/kind.ts';
import { type Bundle, engine, takeTurn, until } from '../../support/engine.ts';

const kind = defineKind<number>({ name: 'k', handler: () => {} });

async function takeLane(bundle: Bundle, worker = 'w'): Promise<LaneRun> {
  const { items } = await takeTurn(bundle, worker);
  const [lane] = items;
  if (!(lane instanceof LaneRun)) throw new Error('no lane was claimed');
  return lane;
}

/** Lets go of a lane in which nothing was run. */
const letGo = (bundle: Bundle, { claim, id, pos, floor }: LaneRun) =>
  bundle.rows<{ lost: string[] | null; let_go: string[] | null }>(
    `select lost, let_go from tallyman.settle('w', $1, $2, '{}', '{}', '{}', '{}', '{}', null, 1e9, $3, $4, $5, '{false}', null, null)`,
    [[claim.token], [claim.stream], [id], [pos], [floor]],
  );

test('ENG-4: to let go of a lane again, since the answer was lost, tells that it was let go', async () => {
  const bundle = await engine();
  await bundle.tallyman.enqueue(kind, 1, { lane: 'a' });
  const lane = await takeLane(bundle);
  expect(await letGo(bundle, lane)).toEqual([{ lost: null, let_go: [lane.id] }]);
  expect(await letGo(bundle, lane)).toEqual([{ lost: null, let_go: [lane.id] }]);
});

test('LANE-3: a job that was redriven to the head of a new lane keeps the head when its holder has run nothing', async () => {
  const bundle = await engine();
  const { tallyman } = bundle;
  const { id } = await tallyman.enqueue(kind, 1, { lane: 'a' });
  await tallyman.enqueue(kind, 2, { lane: 'a' });
  await tallyman.jobs.cancel(id);
  await tallyman.deadLetters.redrive(id, { toHead: true });
  // The first time the lane is known to be rewound.
  for (let turn = 0; turn < 2; turn += 1) {
    await letGo(bundle, await takeLane(bundle));
    expect(await tallyman.check()).toEqual([]);
  }
  expect((await takeLane(bundle, 'w2')).jobs.map((job) => job.payload)).toEqual([1, 2]);
});

test('LANE-3: nothing is fetched past a head that is not due', async () => {
  const bundle = await engine();
  const { tallyman } = bundle;
  const { id } = await tallyman.enqueue(kind, 1, { lane: 'a' });
  await tallyman.enqueue(kind, 2, { lane: 'a' });
  await tallyman.jobs.cancel(id);
  await tallyman.deadLetters.redrive(id, { toHead: true });
  // As a failure does whose answer was lost, and that is reported again after a person has retried the job.
  await bundle.rows(`update tallyman.jobs set scheduled_at = now() + interval '1 hour' where id = $1`, [id]);
  await bundle.rows('update tallyman.lanes set rewound = false');
  const lane = await takeLane(bundle);
  expect(lane.jobs).toEqual([]);
  expect(await fetchMore(tallyman.database, 'w', lane, 10)).toBe(0);
});

test('ENG-20: the floor of a stream does not pass its cursor after a release', async () => {
  const bundle = await engine();
  const { tallyman } = bundle;
  await tallyman.enqueueMany(
    kind,
    [1, 2, 3].map((payload) => ({ payload })),
  );
  // The mark is behind the third, and the cursor goes back to the first.
  const { jobs } = await takeTurn(bundle, 'w');
  await bundle.rows('select tallyman.release($1, $2, $3)', [
    'w',
    jobs.map((job) => job.claim.token),
    jobs.map((job) => job.pos),
  ]);
  for (const job of jobs.slice(1)) await tallyman.jobs.cancel(job.id);
  expect((await takeTurn(bundle, 'w')).jobs.length).toBe(1);
  expect(await tallyman.check()).toEqual([]);
});

test('LANE-3: a job redriven to the head is not mistaken for the job whose position equals its seq', async () => {
  const bundle = await engine();
  const { tallyman } = bundle;
  const first = await tallyman.enqueue(kind, 1, { lane: 'a' });
  const lane = await takeLane(bundle);
  await bundle.rows(`select * from tallyman.fail('w', $1, 1e9)`, [
    JSON.stringify([
      {
        ...{
          id: first.id,
          pos: lane.jobs[0]?.pos,
          token: lane.claim.token,
          lane: lane.id,
          lane_pos: lane.pos,
        },
        ...{ error: { code: 'X' }, dead: true },
      },
    ]),
  ]);
  // The lane's next seq is one above this one's position, and the redrive takes the seq below that.
  const free = await tallyman.enqueue(kind, 2, { correlationId: 'free' });
  await bundle.rows(`update tallyman.lanes set floor = $1::bigint + 1`, [free.id]);
  await tallyman.deadLetters.redrive(first.id, { toHead: true });
  const { jobs } = await takeTurn(bundle, 'w');
  expect(jobs.map((job) => [job.id, job.pos, job.correlationId]).sort()).toEqual(
    [
      [first.id, free.id, first.id],
      [free.id, free.id, 'free'],
    ].sort(),
  );
});

test('LANE-3: a failed head stays the head, also if its lane cannot be let go with the failure', async () => {
  const bundle = await engine();
  const { tallyman } = bundle;
  const other = new pg.Client({ connectionString: bundle.url });
  await other.connect();
  const ran: string[] = [];
  const flaky = defineKind<string>({
    name: 'flaky',
    retry: { backoff: () => 50 },
    handler: async (name, { attempt }) => {
      ran.push(`${name} ${attempt}`);
      if (name !== 'head' || attempt > 1) return;
      // From now on the lane's row is locked: the failure is written, and the lane stays with the worker.
      await other.query("begin; select 1 from tallyman.lanes where key = 'a' for update");
      throw new Error('fails once');
    },
  });
  await tallyman.enqueue(flaky, 'head', { lane: 'a' });
  await bundle.work({ kinds: [flaky] });
  await until('the failure is written', async () => {
    const { rows } = await other.query<{ attempts: number }>('select attempts from tallyman.jobs');
    return rows[0]?.attempts === 1;
  });
  const { id } = await tallyman.enqueue(flaky, 'behind', { lane: 'a' });
  // Not on the connection with the open transaction: PostgreSQL reads pg_stat_activity once for each transaction.
  await until('the worker has tried to let go again', async () => {
    const rows = await bundle.rows(
      `select 1 from pg_stat_activity
        where datname = current_database() and query like '%tallyman' || '.settle(%'
          and query_start > (select created_at from tallyman.jobs where id = $1)`,
      [id],
    );
    return rows.length > 0;
  });
  await other.query('commit');
  await other.end();
  await until('both have run', () => ran.length >= 3);
  expect(ran).toEqual(['head 1', 'head 2', 'behind 1']);
  await until('nothing is left', async () => (await bundle.rows('select 1 from tallyman.jobs')).length === 0);
  expect(await tallyman.check()).toEqual([]);
});

test('LANE-8: a job that was enqueued after its lane began to be let go is due, not delayed until the next poll', async () => {
  const bundle = await engine();
  const { tallyman } = bundle;
  await tallyman.enqueue(kind, 1, { lane: 'a' });
  const lane = await takeLane(bundle);
  await bundle.rows('delete from tallyman.jobs');
  await tallyman.database.transaction(async (tx) => {
    // From here on now() of this transaction is before the job's.
    await tx.query('select now()');
    await tallyman.enqueue(kind, 2, { lane: 'a' });
    await tx.query(`select tallyman.let_go($1, $2, $3, '{false}')`, [[lane.id], [lane.pos], [lane.floor]]);
  });
  expect(await bundle.rows('select due_at, pos is not null as "isReady" from tallyman.lanes')).toEqual([
    { due_at: null, isReady: true },
  ]);
});
