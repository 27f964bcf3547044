import type pg from 'pg';
import type { ClaimedJob } from './claim.ts';
import type { Enqueued } from './enqueue.ts';
import type { Kind, Priority } from './kind.ts';
import type { EnqueueOptions } from './new-job.ts';

/** What a handler is given beside its payload. */
export interface JobContext {
  readonly id: string;
  readonly kind: string;
  readonly queue: string;
  readonly priority: Priority;
  readonly tenantId: string;
  readonly correlationId: string;
  /** 1 for the first run. */
  readonly attempt: number;
  readonly maxAttempts: number;
  readonly lane: string | undefined;
  /** The job's place in its lane; grows in commit order. */
  readonly seq: string | undefined;
  readonly createdAt: Date;
  readonly scheduledAt: Date;
  /** Fires when the lease is lost, the time is up, the job is cancelled, or the worker must stop now. */
  readonly signal: AbortSignal;
  /**
   * Writes the handler's effects and the job's completion in one transaction, fenced: both happen, once, or neither.
   * This is how an effect happens exactly once. Throws `LeaseLostError` when the lease has gone to somebody else.
   */
  commit<T>(work: (tx: pg.PoolClient) => Promise<T>): Promise<T>;
  /** Enqueues a successor; it inherits tenant and correlation id. */
  enqueue<P>(
    kind: Kind<P>,
    payload: P,
    options?: EnqueueOptions & { readonly tx?: pg.ClientBase },
  ): Promise<Enqueued>;
}

/** What a context needs of its worker. */
export interface ContextHost {
  commit<T>(job: ClaimedJob, work: (tx: pg.PoolClient) => Promise<T>): Promise<T>;
  enqueue<P>(
    kind: Kind<P>,
    payload: P,
    options: EnqueueOptions & { readonly tx?: pg.ClientBase },
  ): Promise<Enqueued>;
}

/** Reads everything off the claimed job when asked: a handler that needs none of it pays for none of it. */
export class RunningContext implements JobContext {
  readonly #job: ClaimedJob;
  readonly #host: ContextHost;

  constructor(job: ClaimedJob, host: ContextHost) {
    this.#job = job;
    this.#host = host;
  }

  get id() {
    return this.#job.id;
  }
  get kind() {
    return this.#job.kind;
  }
  get queue() {
    return this.#job.claim.queue;
  }
  get priority() {
    return this.#job.claim.priority;
  }
  get tenantId() {
    return this.#job.tenantId;
  }
  get correlationId() {
    return this.#job.correlationId;
  }
  get attempt() {
    return this.#job.attempts + 1;
  }
  get maxAttempts() {
    return this.#job.maxAttempts;
  }
  get lane() {
    return this.#job.lane?.key;
  }
  get seq() {
    return this.#job.lane && this.#job.pos;
  }
  get createdAt() {
    return toDate(this.#job.createdAt);
  }
  get scheduledAt() {
    return toDate(this.#job.scheduledAt);
  }

  get signal(): AbortSignal {
    this.#job.controller ??= new AbortController();
    return this.#job.controller.signal;
  }

  commit<T>(work: (tx: pg.PoolClient) => Promise<T>): Promise<T> {
    return this.#host.commit(this.#job, work);
  }

  enqueue<P>(kind: Kind<P>, payload: P, options: EnqueueOptions & { readonly tx?: pg.ClientBase } = {}) {
    return this.#host.enqueue(kind, payload, {
      tenantId: this.#job.tenantId,
      correlationId: this.#job.correlationId,
      ...options,
    });
  }
}

const toDate = (seconds: number): Date => new Date(seconds * 1000);
