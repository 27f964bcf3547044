import type { Database } from '../database/database.ts';
import type { RetryLater } from '../errors.ts';
import type { ClaimedJob } from './claim.ts';
import type { Backoff } from './kind.ts';

export type FailureOutcome = 'QUEUED' | 'FAILED' | 'DEAD_LETTER' | 'LOST' | 'MISSING';

const failStatement = { name: 'tm_fail', text: 'select id, status from tallyman.fail($1, $2, $3)' };

/** A failed attempt as SQL takes it. */
export interface Failure {
  readonly job: ClaimedJob;
  readonly error: { readonly code: string; readonly message: string; readonly stack: string | undefined };
  readonly delayMs: number;
  readonly permanent: boolean;
}

/** Up to a tenth on top, so that what failed together does not come back together. */
export const withJitter = (ms: number): number => ms * (1 + Math.random() * 0.1);

export function toFailure(job: ClaimedJob, thrown: unknown, backoff: Backoff): Failure {
  const attempt = job.attempts + 1;
  const delayMs = isRetryLater(thrown) ? thrown.delayMs : withJitter(backoff(attempt));
  return { job, error: describeThrown(thrown), delayMs, permanent: isNamed(thrown, 'PermanentError') };
}

// By name, not by class: a module of kinds may have its own copy of this package.
const isNamed = (thrown: unknown, name: string): thrown is Error =>
  thrown instanceof Error && thrown.name === name;
const isRetryLater = (thrown: unknown): thrown is RetryLater =>
  isNamed(thrown, 'RetryLater') && typeof (thrown as Partial<RetryLater>).delayMs === 'number';

function describeThrown(thrown: unknown): Failure['error'] {
  if (!(thrown instanceof Error)) return { code: 'ERROR', message: clean(String(thrown)), stack: undefined };
  const own = (thrown as { code?: unknown }).code;
  return {
    code: typeof own === 'string' ? clean(own) : thrown.name,
    message: clean(thrown.message).slice(0, 10_000),
    stack: thrown.stack === undefined ? undefined : clean(thrown.stack).slice(0, 20_000),
  };
}

/** Postgres text holds no NUL. */
const clean = (text: string): string => text.replaceAll('\0', '�');

/** Reports failed attempts, fenced. Answers what became of each. */
export async function reportFailures(
  database: Database,
  worker: string,
  keepMs: number,
  failures: readonly Failure[],
): Promise<FailureOutcome[]> {
  const items = failures.map(({ job, error, delayMs, permanent }) => ({
    id: job.id,
    pos: job.pos,
    token: job.claim.token,
    error,
    delay_ms: delayMs,
    permanent,
  }));
  const rows = await database.run(failStatement, [worker, JSON.stringify(items), keepMs]);
  const outcomes = new Map(rows.map(([id, status]) => [id, status as FailureOutcome]));
  return failures.map(({ job }) => outcomes.get(job.id) ?? 'MISSING');
}
