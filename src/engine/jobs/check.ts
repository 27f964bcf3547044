import type { Queryable } from '../database/database.ts';
import type { Finding } from '../database/doctor.ts';
import { check, type Problem } from '../sql/check.ts';

export type { Problem } from '../sql/check.ts';

/** Empty in a healthy database, at any moment. Reads whole tables: for tests and for `tallyman doctor jobs`. */
export async function checkJobs(database: Queryable): Promise<readonly Problem[]> {
  return check(database);
}

/** The same as findings for `tallyman doctor jobs`, and whether workers are present. */
export async function examineJobs(database: Queryable): Promise<readonly Finding[]> {
  const problems = await checkJobs(database);
  const kinds = new Map<string, Problem[]>();
  for (const problem of problems)
    kinds.set(problem.problem, [...(kinds.get(problem.problem) ?? []), problem]);
  const found = [...kinds].map(
    ([problem, [first, ...others]]): Finding => ({
      check: 'work',
      level: 'fail',
      message: `${problem}: ${first?.id} (${first?.detail})${others.length > 0 ? `, and ${others.length} more` : ''}`,
      advice: adviceFor[problem] ?? restart,
    }),
  );
  const allMoves: Finding = { check: 'work', level: 'ok', message: 'everything that waits can move' };
  return [...(found.length > 0 ? found : [allMoves]), await examineWorkers(database)];
}

async function examineWorkers(database: Queryable): Promise<Finding> {
  const { rows } = await database.query<{ present: number; missing: number; waiting: boolean }>(
    `select count(*) filter (where w.missing_since is null)::integer as present,
            count(*) filter (where w.missing_since is not null)::integer as missing,
            exists (select 1 from tallyman.jobs j where j.scheduled_at <= now()) as waiting
       from tallyman.workers w`,
  );
  const { present = 0, missing = 0, waiting = false } = rows[0] ?? {};
  const gone = missing > 0 ? `, ${missing} gone and not taken over yet` : '';
  if (present > 0 || !waiting) return { check: 'workers', level: 'ok', message: `${present} present${gone}` };
  return {
    check: 'workers',
    level: 'warn',
    message: `jobs are due, and no worker is present${gone}`,
    advice:
      'Start a worker: tallyman worker, or tallyman serve. Behind a transaction pooler workers are not listed.',
  };
}

const restart =
  'Report this with the detail. Cancelling the job and running it again puts it back on its way.';

const adviceFor: Readonly<Record<string, string>> = {
  'job below the floor of its stream': restart,
  'lane below the floor of its stream':
    'Report this with the detail. Enqueueing into the lane does not wake it.',
  'lane at rest with work': 'Report this with the detail. Enqueue one more job into the lane to wake it.',
  'lane waits longer than its head': 'Run tallyman jobs retry on the first job of the lane.',
  'blocked lane on its stream': 'Report this with the detail, then unblock the lane: tallyman lanes unblock.',
  'claim of a worker that is gone': 'No worker has been running to take it over: start one.',
};
