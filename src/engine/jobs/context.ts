import type pg from 'pg';
import type { TenantDatabase } from '../database/tenant.ts';
import type { ClaimedJob } from './claim.ts';
import type { Enqueued } from './enqueue.ts';
import type { AnyKind, Kind, Priority } from './kind.ts';
import type { EnqueueOptions } from './new-job.ts';

/** What a handler gets besides its payload. */
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
  /**
   * The database as the job's tenant sees it. Only for kinds with `scope: 'tenant'`. What runs here is not part of
   * `commit`, and happens even if the attempt fails.
   */
  readonly tenant: TenantDatabase;
  /** Fires when the lease is lost, the time is up, the job is cancelled, or the worker must stop now. */
  readonly signal: AbortSignal;
  /**
   * Writes the handler's effects and the job's completion in one transaction, fenced: both happen, once, or neither.
   * This is how an effect happens exactly once. With `scope: 'tenant'` the effects run under the tenant's row-level
   * security. Throws `LeaseLostError` when another worker has the lease.
   */
  commit<T>(work: (tx: pg.PoolClient) => Promise<T>): Promise<T>;
  /**
   * The same for an effect that is one statement. Much faster: effects of several jobs share a commit, and nothing waits for
   * an answer in between. If the connection is lost at the wrong moment, the result of a statement that was committed is
   * empty.
   */
  commit<Row extends pg.QueryResultRow>(
    text: string,
    values?: readonly unknown[],
  ): Promise<pg.QueryResult<Row>>;
  /** Enqueues a successor; it inherits tenant and correlation id. */
  enqueue<Output, Input>(
    kind: Kind<Output, Input>,
    payload: NoInfer<Input>,
    options?: EnqueueOptions & { readonly tx?: pg.ClientBase },
  ): Promise<Enqueued>;
}

/** What a context needs from its worker. */
export interface ContextHost {
  tenant(job: ClaimedJob): TenantDatabase;
  commit<T>(job: ClaimedJob, work: (tx: pg.PoolClient) => Promise<T>): Promise<T>;
  commitStatement<Row extends pg.QueryResultRow>(
    job: ClaimedJob,
    text: string,
    values: readonly unknown[],
  ): Promise<pg.QueryResult<Row>>;
  enqueue(
    kind: AnyKind,
    payload: unknown,
    options: EnqueueOptions & { readonly tx?: pg.ClientBase },
  ): Promise<Enqueued>;
}

/** Reads fields from the claimed job on demand, so that a handler pays only for what it uses. */
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
  get tenant() {
    return this.#host.tenant(this.#job);
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

  commit<T>(work: (tx: pg.PoolClient) => Promise<T>): Promise<T>;
  commit<Row extends pg.QueryResultRow>(
    text: string,
    values?: readonly unknown[],
  ): Promise<pg.QueryResult<Row>>;
  commit(effect: string | ((tx: pg.PoolClient) => Promise<unknown>), values: readonly unknown[] = []) {
    return typeof effect === 'string'
      ? this.#host.commitStatement(this.#job, effect, values)
      : this.#host.commit(this.#job, effect);
  }

  enqueue<Output, Input>(
    kind: Kind<Output, Input>,
    payload: NoInfer<Input>,
    options: EnqueueOptions & { readonly tx?: pg.ClientBase } = {},
  ) {
    return this.#host.enqueue(kind, payload, {
      tenantId: this.#job.tenantId,
      correlationId: this.#job.correlationId,
      ...options,
    });
  }
}

const toDate = (seconds: number): Date => new Date(seconds * 1000);
