import type { Database } from '../database/database.ts';
import { statementRetry } from '../database/outage.ts';
import { backoffMs } from '../resilience/backoff.ts';
import { pause } from '../resilience/deadline.ts';
import type { ClaimedJob } from './claim.ts';

/**
 * The payload of a job that a claim did not bring because it is large; undefined when the job is no longer there or no
 * longer ours. Tries until the database answers.
 */
export async function fetchPayload(
  database: Database,
  job: ClaimedJob,
  onError: (error: unknown) => void,
): Promise<string | undefined> {
  for (let attempt = 0; !job.claim.lost; attempt += 1) {
    try {
      const { rows } = await database.query<{ text: string }>(
        'select payload::text as text from tallyman.jobs where id = $1 and pos = $2',
        [job.id, job.pos],
      );
      return rows[0]?.text;
    } catch (error) {
      onError(error);
      await pause(backoffMs(attempt, statementRetry));
    }
  }
  return undefined;
}
