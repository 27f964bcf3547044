import { wakeAfterCommit } from '../database/after-commit.ts';
import type { Queryable } from '../database/database.ts';

/** Wakes workers for jobs that may run again, once the transaction of `on` has committed. A hint for each queue. */
export async function wakeForJobs(on: Queryable, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return;
  const { rows } = await on.query<{ queue: string; jobId: string }>(
    `select s.queue, max(j.id)::text as "jobId" from tallyman.jobs j join tallyman.streams s on s.id = j.stream
      where j.id = any ($1::bigint[]) group by s.queue`,
    [ids],
  );
  wakeAfterCommit(on, rows);
}
