import { type Database, isConnectionError } from '../database/database.ts';
import { type EnqueuedAndClaimed, enqueueClaimed } from '../sql/enqueue-claimed.ts';
import { Claim, type ClaimAnswer, ClaimedJob, claimedAtOnce } from './claim.ts';
import { alikeArguments, type NewJob } from './new-job.ts';

/*
 * An idle worker claims new jobs in the commit that enqueues them: no notification and no separate claim are needed.
 * docs/decisions/0010-claim-in-the-enqueue-commit.md
 */

/** A worker of this process that claims in the commit of an enqueue. */
export interface Claimant {
  readonly worker: string;
  readonly leaseMs: number;
  readonly staleMs: number;
  /** To be called in any case. `refused`: nothing was written. `unknown`: it may have been, and the answer was lost. */
  readonly answer: (answer: ClaimAnswer | 'refused' | 'unknown') => void;
}

/** Offers jobs of a kind to a worker of this process before they are committed. Undefined: it does not take them now. */
export type FindClaimant = (queue: string, kind: string, jobs: number) => Claimant | undefined;

/**
 * Inserts jobs that differ only in their payload and claims them, in one commit. Returns their ids; undefined: it was not
 * possible, and nothing was written. Throws if the outcome is unknown.
 */
export async function enqueueAndClaim(
  database: Database,
  jobs: readonly NewJob[],
  claimant: Claimant,
): Promise<readonly string[] | undefined> {
  const { queue, priority } = jobs[0] as NewJob;
  const { worker, leaseMs, staleMs } = claimant;
  let taken: EnqueuedAndClaimed | undefined;
  try {
    taken = await enqueueClaimed(database, { ...alikeArguments(jobs), worker, leaseMs, staleMs });
  } catch (error) {
    const isUnknown = isConnectionError(error);
    claimant.answer(isUnknown ? 'unknown' : 'refused');
    if (isUnknown) throw error;
    return undefined;
  }
  if (!taken) {
    claimant.answer('refused');
    return undefined;
  }
  const { token, stream, createdAt, ids } = taken;
  const claim = new Claim(token, stream, queue, priority);
  const claimed = ids.map((id, i) => claimedAs(claim, id, jobs[i] as NewJob, createdAt));
  claimant.answer(claimedAtOnce(claim, claimed));
  return ids;
}

/** The job as a claim would have returned it. */
function claimedAs(claim: Claim, id: string, { row }: NewJob, created: number): ClaimedJob {
  return new ClaimedJob(claim, undefined, id, row.k, JSON.parse(row.p), created, {
    ...(row.t !== 'default' && { tenant: row.t }),
    maxAttempts: row.m,
    ...(row.c !== undefined && { correlation: row.c }),
    ...(row.w !== undefined && { trace: row.w }),
  });
}
