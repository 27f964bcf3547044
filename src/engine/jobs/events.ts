import type { ClaimedJob } from './claim.ts';

/** What an observer gets about a job. */
export interface JobEvent {
  readonly id: string;
  readonly kind: string;
  readonly tenantId: string;
  readonly lane: string | undefined;
  readonly attempt: number;
  readonly durationMs: number;
}

/** Events of a worker. Listeners must be quick and must not throw; they run on the hot path. */
export interface WorkerEvents {
  started: [JobEvent];
  /** Confirmed in the database. */
  succeeded: [JobEvent];
  superseded: [JobEvent];
  retried: [JobEvent & { readonly error: string; readonly delayMs: number }];
  failed: [JobEvent & { readonly error: string }];
  dead: [JobEvent & { readonly error: string }];
  /** The database was down while it ran: it runs again after `delayMs`, at no cost. */
  handedBack: [JobEvent & { readonly error: string; readonly delayMs: number }];
  /** Another worker took the job over while it ran here, or it was cancelled; its result was discarded. */
  discarded: [JobEvent & { readonly reason: string }];
  /** `durationMs`: what the claim took; undefined where it was part of the enqueue's commit. */
  claimed: [{ readonly items: number; readonly jobs: number; readonly durationMs: number | undefined }];
  recovered: [{ readonly worker: string; readonly freed: number; readonly counted: string | undefined }];
  unknownKind: [{ readonly kind: string }];
  /** A hint that there may be work, from this process (`local`), LISTEN (`postgres`) or a broker, by its name. */
  wakeup: [{ readonly source: string }];
  error: [Error];
}

export function toEvent(job: ClaimedJob): JobEvent {
  return {
    id: job.id,
    kind: job.kind,
    tenantId: job.tenantId,
    lane: job.lane?.key,
    attempt: job.attempts + 1,
    durationMs: job.startedAt === 0 ? 0 : performance.now() - job.startedAt,
  };
}
