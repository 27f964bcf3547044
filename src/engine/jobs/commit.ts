import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { type Database, isConnectionError } from '../database/database.ts';
import { LeaseLostError, TallymanError } from '../errors.ts';
import type { ClaimedJob } from './claim.ts';
import type { Settler } from './settle.ts';

/** `ctx.commit`: the handler's effects and the job's completion in one transaction, fenced. */
export async function commitEffects<T>(
  job: ClaimedJob,
  work: (tx: pg.PoolClient) => Promise<T>,
  { database, settler, worker }: { database: Database; settler: Settler; worker: string },
): Promise<T> {
  if (job.ended || job.claim.lost) throw new LeaseLostError(`job ${job.id} is no longer this worker's`);
  if (job.committed) throw new TallymanError('ALREADY_COMMITTED', `job ${job.id} has already committed`);
  // In a lane the effect of this job must not become durable before the end of the one before it.
  if (job.lane) await settler.laneConfirmed(job.lane);
  let result: { value: T } | undefined;
  try {
    await database.transaction(async (tx) => {
      result = { value: await work(tx) };
      if (!(await settler.completeWithin(tx, job)))
        throw new LeaseLostError(
          `job ${job.id}: its lease was taken over, or it was cancelled; nothing was written`,
        );
    });
  } catch (error) {
    if (!result || !isConnectionError(error) || !(await wasCommitted(job, database, worker))) throw error;
  }
  job.committed = true;
  return (result as { value: T }).value;
}

/** The connection went while the commit was under way: look whether it happened. */
async function wasCommitted(job: ClaimedJob, database: Database, worker: string): Promise<boolean> {
  for (let attempt = 0; attempt < 10; attempt += 1) {
    try {
      const { rows } = await database.query<{ done: boolean }>(
        `select not exists (select 1 from tallyman.jobs j where j.id = $1 and j.pos = $2)
            and exists (select 1 from tallyman.claims c where c.token = $3 and c.worker = $4)
            and not exists (select 1 from tallyman.history h where h.id = $1 and h.status = 'CANCELLED') as done`,
        [job.id, job.pos, job.claim.token, worker],
      );
      return rows[0]?.done === true;
    } catch {
      await sleep(Math.min(2000, 50 * 2 ** attempt));
    }
  }
  return false;
}
