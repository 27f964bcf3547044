import { TallymanError } from '../errors.ts';
import { requireWhole } from '../validate.ts';
import type { AnyKind } from './kind.ts';

export interface WorkerOptions {
  readonly kinds: readonly AnyKind[];
  /** Items run at once. Default 10. */
  readonly concurrency?: number;
  /** Queues to work on; a number bounds how many items of that queue this worker holds. Default: those of the kinds. */
  readonly queues?: readonly string[] | Readonly<Record<string, number>>;
  /** Default 1000. */
  readonly pollIntervalMs?: number;
  /** Default 60,000. */
  readonly leaseMs?: number;
  /** Default half the lease. */
  readonly renewMs?: number;
  /** Work without a heartbeat for this long is taken back, however long its lease. Default 120,000. */
  readonly stuckAfterMs?: number;
  /** How long the heartbeat renews leases while the event loop is blocked. Default 600,000. */
  readonly blockedLimitMs?: number;
  /** Default 30,000. */
  readonly recoverIntervalMs?: number;
  /** Most jobs held at once, running ones included. Default 2000. */
  readonly maxPrefetch?: number;
  /** Jobs of a lane run before it is let go. Default 20. */
  readonly laneBatch?: number;
  /** How long `stop` waits for running handlers. Default 30,000. */
  readonly stopTimeoutMs?: number;
}

/** The options with their defaults. */
export interface DecidedOptions extends Required<Omit<WorkerOptions, 'kinds' | 'queues'>> {
  readonly kinds: ReadonlyMap<string, AnyKind>;
  readonly queues: readonly string[];
  /** How many items of a queue may be held, where there is a bound. */
  readonly limits: ReadonlyMap<string, number>;
  /** Work without a heartbeat for this long counts as stuck. */
  readonly staleMs: number;
}

export function decide({ kinds, queues, ...options }: WorkerOptions): DecidedOptions {
  const leaseMs = options.leaseMs ?? 60_000;
  const renewMs = options.renewMs ?? leaseMs / 2;
  const stuckAfterMs = options.stuckAfterMs ?? 120_000;
  const concurrency = options.concurrency ?? 10;
  requireWhole(concurrency, 'concurrency', 1, 10_000);
  if (renewMs >= leaseMs)
    throw new TallymanError('BAD_OPTION', `renewMs (${renewMs}) must be below leaseMs (${leaseMs})`);
  const limits = queues && !Array.isArray(queues) ? Object.entries(queues) : [];
  const names = Array.isArray(queues) ? queues : limits.map(([queue]) => queue);
  const decided = {
    concurrency,
    pollIntervalMs: options.pollIntervalMs ?? 1000,
    leaseMs,
    renewMs,
    stuckAfterMs,
    blockedLimitMs: options.blockedLimitMs ?? 600_000,
    recoverIntervalMs: options.recoverIntervalMs ?? 30_000,
    maxPrefetch: options.maxPrefetch ?? 2000,
    laneBatch: options.laneBatch ?? 20,
    stopTimeoutMs: options.stopTimeoutMs ?? 30_000,
    kinds: indexKinds(kinds),
    queues: queues ? names : [...new Set(kinds.map((kind) => kind.queue))],
    limits: new Map(limits),
    staleMs: Math.max(stuckAfterMs, renewMs * 3),
  };
  if (decided.queues.length === 0)
    throw new TallymanError('BAD_OPTION', 'a worker needs at least one kind or queue');
  return decided;
}

function indexKinds(kinds: readonly AnyKind[]): Map<string, AnyKind> {
  const index = new Map<string, AnyKind>();
  for (const kind of kinds) {
    if (index.has(kind.name)) throw new TallymanError('BAD_OPTION', `kind "${kind.name}" is given twice`);
    index.set(kind.name, kind);
  }
  return index;
}
