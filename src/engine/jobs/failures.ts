import { inspect } from 'node:util';
import type { Database } from '../database/database.ts';
import type { RetryLater } from '../errors.ts';
import { withJitter } from '../resilience/backoff.ts';
import { type FailedRow, fail } from '../sql/fail.ts';
import type { ClaimedJob } from './claim.ts';
import type { Backoff } from './kind.ts';

export type FailureOutcome = FailedRow['status'] | 'MISSING';

/** The outcome of a failed attempt. */
export interface ReportedFailure {
  readonly outcome: FailureOutcome;
  /** Of a job in a lane: the lane was let go with it. */
  readonly isLaneLetGo: boolean;
  /** The lane waits for a person because of this job. */
  readonly isLaneBlocked: boolean;
}

/** A failed attempt, as a parameter for SQL. */
export interface Failure {
  readonly job: ClaimedJob;
  readonly error: { readonly code: string; readonly message: string; readonly stack: string | undefined };
  readonly delayMs: number;
  readonly permanent: boolean;
  /** Attempts that it costs: 0 if the handler has not tried, or our own database was down. */
  readonly cost: 0 | 1;
  /** Ends as a dead letter, whatever attempts are left. */
  readonly dead: boolean;
  /** Our own database was down. */
  readonly isOutage?: boolean;
  /** Its lane goes on: jobs behind it have been run already. */
  readonly isLaneKept?: boolean;
}

export function toFailure(job: ClaimedJob, thrown: unknown, backoff: Backoff): Failure {
  const attempt = job.attempts + 1;
  const delayMs = isRetryLater(thrown) ? thrown.delayMs : withJitter(backoff(attempt));
  return {
    job,
    error: describeThrown(thrown),
    delayMs,
    permanent: isNamed(thrown, 'PermanentError'),
    cost: isRetryLater(thrown) && thrown.isFree === true ? 0 : 1,
    dead: isNamed(thrown, 'GiveUpError'),
  };
}

/** The database was down: the job runs again in a moment, and has lost no attempt. */
export function toHandBack(job: ClaimedJob, thrown: unknown): Failure {
  const delayMs = 500 + Math.random() * 1000;
  const error = describeThrown(thrown);
  return { job, error, delayMs, permanent: false, cost: 0, dead: false, isOutage: true };
}

/** The database refuses what is to be written about the job. No retry can change that. */
export function toRefused(job: ClaimedJob, code: string, refusal: unknown): Failure {
  const { message } = describeThrown(refusal);
  const error = { code, message: `PostgreSQL refused to store it: ${message}`, stack: undefined };
  return { job, error, delayMs: 0, permanent: false, cost: 1, dead: true };
}

// By name, not by class: a module of kinds may have its own copy of this package.
const isNamed = (thrown: unknown, name: string): thrown is Error =>
  thrown instanceof Error && thrown.name === name;
const isRetryLater = (thrown: unknown): thrown is RetryLater =>
  isNamed(thrown, 'RetryLater') && typeof (thrown as Partial<RetryLater>).delayMs === 'number';

/** Inspecting a thrown value may throw again. A value that cannot be inspected is replaced. */
export function readable(thrown: unknown): unknown {
  try {
    if (!(thrown instanceof Error)) inspect(thrown, { depth: 1 });
    else for (const key of ['name', 'message', 'stack', 'cause', 'code']) Reflect.get(thrown, key);
    return thrown;
  } catch {
    return new Error('the handler threw something that cannot be read');
  }
}

const maxMessage = 10_000;
const maxStack = 20_000;

/** Describes whatever was thrown (and is `readable`), as far as possible. */
export function describeThrown(thrown: unknown): Failure['error'] {
  if (!(thrown instanceof Error))
    return { code: ownCode(thrown) ?? 'ERROR', message: clean(asText(thrown), maxMessage), stack: undefined };
  return {
    code: ownCode(thrown) ?? clean(asText(thrown.name), 200),
    message: clean(asText(thrown.message), maxMessage),
    stack: typeof thrown.stack === 'string' ? clean(thrown.stack, maxStack) : undefined,
  };
}

const asText = (thrown: unknown): string =>
  typeof thrown === 'string'
    ? thrown
    : inspect(thrown, { depth: 4, breakLength: Number.POSITIVE_INFINITY, maxStringLength: maxMessage });

function ownCode(thrown: unknown): string | undefined {
  const code = (thrown as { code?: unknown } | null | undefined)?.code;
  return typeof code === 'string' && code.length > 0 ? clean(code, 200) : undefined;
}

/** Cut, and without what PostgreSQL's text cannot hold: NUL, and halves of surrogate pairs. */
const clean = (text: string, max: number): string =>
  text.slice(0, max).toWellFormed().replaceAll('\0', '\ufffd');

/** Reports failed attempts, fenced. Returns the outcome of each. */
export async function reportFailures(
  database: Database,
  worker: string,
  keepMs: number,
  failures: readonly Failure[],
): Promise<ReportedFailure[]> {
  const items = failures.map(({ job, error, delayMs, permanent, cost, dead, isLaneKept }) => ({
    id: job.id,
    pos: job.pos,
    attempts: job.attempts,
    token: job.claim.token,
    ...(job.lane && !isLaneKept && { lane: job.lane.id, lane_pos: job.lane.pos }),
    error,
    delay_ms: delayMs,
    permanent,
    cost,
    dead,
  }));
  const rows = await fail(database, { worker, items, keepMs });
  const reported = new Map(rows.map((row) => [row.id, row]));
  return failures.map(({ job }) => {
    const row = reported.get(job.id);
    return {
      outcome: row?.status ?? 'MISSING',
      isLaneLetGo: row?.letGo === true,
      isLaneBlocked: row?.blocked === true,
    };
  });
}
