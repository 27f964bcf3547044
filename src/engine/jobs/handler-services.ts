import type pg from 'pg';
import type { Database } from '../database/database.ts';
import { TenantDatabase } from '../database/tenant.ts';
import { TallymanError } from '../errors.ts';
import type { ClaimedJob } from './claim.ts';
import { Committer } from './commit.ts';
import type { ContextHost } from './context.ts';
import type { Enqueuer } from './enqueue.ts';
import type { AnyKind, Kind } from './kind.ts';
import type { EnqueueOptions } from './new-job.ts';
import type { Settler } from './settle.ts';

export interface HandlerServicesOptions {
  readonly database: Database;
  readonly enqueuer: Enqueuer;
  readonly worker: string;
  readonly kinds: ReadonlyMap<string, AnyKind>;
  readonly leaseMs: number;
  readonly keepMs: number;
  readonly settler: Settler;
}

/** What a handler may ask for through its context. */
export class HandlerServices implements ContextHost {
  readonly #options: HandlerServicesOptions;
  readonly #committer: Committer;

  constructor(options: HandlerServicesOptions) {
    this.#options = options;
    this.#committer = new Committer(options);
  }

  /** The rows of the job's tenant, and no others. */
  tenant(job: ClaimedJob): TenantDatabase {
    if (!this.#isScoped(job))
      throw new TallymanError(
        'BAD_STATE',
        `kind "${job.kind}" is not bound to a tenant; give it scope: 'tenant' to use context.tenant`,
      );
    return new TenantDatabase(this.#options.database, job.tenantId);
  }

  commit<T>(job: ClaimedJob, work: (tx: pg.PoolClient) => Promise<T>): Promise<T> {
    return this.#committer.work(job, work, this.#isScoped(job));
  }

  commitStatement<Row extends pg.QueryResultRow>(job: ClaimedJob, text: string, values: readonly unknown[]) {
    return this.#committer.statement<Row>(job, { text, values, isScoped: this.#isScoped(job) });
  }

  async enqueue<P>(
    kind: Kind<P>,
    payload: P,
    { tx, ...options }: EnqueueOptions & { readonly tx?: pg.ClientBase },
  ) {
    return this.#options.enqueuer.one(kind, payload, options, tx);
  }

  #isScoped(job: ClaimedJob): boolean {
    return this.#options.kinds.get(job.kind)?.scope === 'tenant';
  }
}
