import { withClient } from '../../../lib/postgres.ts';
import { BrokenPromise } from '../verify.ts';
import { type Bench, enqueueAll, finished, type Measured, settle, stopAndVerify } from './bench.ts';

/** No unique index: it would refuse a second row, and this has to count one. */
const TABLE = 'create table effects (job integer not null, at timestamptz not null default now())';
const INSERT = 'insert into effects (job) values ($1)';

/** A drain whose handler writes one row of the user's for each job; counts the rows afterwards. */
export async function effects(bench: Bench): Promise<Measured> {
  const { open, size, task, tally } = bench;
  if (open.workWithWrites === undefined) throw new Error(`${task.system} has no way to write.`);
  await withClient(task.url, (client) => client.query(TABLE));
  await enqueueAll(bench);
  await settle(bench);
  const started = performance.now();
  const stop = await open.workWithWrites(async (payload, write) => {
    await write(INSERT, [payload.index]);
    tally.mark(payload);
  });
  const ended = await finished(bench);
  await stopAndVerify(bench, stop);
  await verifyRows(task.url, size.jobs);
  return { value: size.jobs / ((ended - started) / 1000) };
}

async function verifyRows(url: string, jobs: number): Promise<void> {
  const { rows } = await withClient(url, (client) =>
    client.query<{ rows: number; jobs: number }>(
      'select count(*)::int as rows, count(distinct job)::int as jobs from effects',
    ),
  );
  const found = rows[0];
  if (found?.rows === jobs && found.jobs === jobs) return;
  throw new BrokenPromise(`${jobs} jobs left ${found?.rows} rows, of ${found?.jobs} different jobs.`);
}
