import { createHash } from 'node:crypto';
import type pg from 'pg';
import { Batcher } from '../batching/batcher.ts';
import { type Database, isOutage } from '../database/database.ts';
import type { Statement } from '../database/pipeline.ts';
import { enterTenant, leaveTenant } from '../database/tenant.ts';
import { LeaseLostError, TallymanError } from '../errors.ts';
import { exponentialMs } from '../resilience/backoff.ts';
import { pause } from '../resilience/deadline.ts';
import {
  completeOrRaise,
  type completeOrRaiseFunction,
  completeOrRaiseText,
  notCompleted,
} from '../sql/complete-or-raise.ts';
import { type ArgumentsOf, arrayOf } from '../sql/sql-function.ts';
import type { ClaimedJob } from './claim.ts';
import type { Settler } from './settle.ts';

export interface CommitterOptions {
  readonly database: Database;
  readonly settler: Settler;
  readonly worker: string;
  readonly leaseMs: number;
  readonly keepMs: number;
}

interface EffectStatement {
  readonly text: string;
  readonly values: readonly unknown[];
  /** It sees and writes the rows of the job's tenant alone. */
  readonly isScoped: boolean;
}

interface Effect extends EffectStatement {
  readonly job: ClaimedJob;
}

/**
 * `ctx.commit`: the handler's effects and the job's completion in one transaction, fenced.
 *
 * With a function the transaction is the handler's alone. With one statement, effects of several jobs share a
 * transaction, and its statements go out together; one that fails fails alone, since the others are tried again without it.
 */
export class Committer {
  readonly #options: CommitterOptions;
  readonly #effects: Batcher<Effect, pg.QueryResult>;

  constructor(options: CommitterOptions) {
    this.#options = options;
    this.#effects = new Batcher({
      send: (effects) => this.#commitTogether(effects),
      maxBatch: 100,
      maxInFlight: 2,
    });
  }

  /**
   * A worker that is frozen in the middle holds the transaction, and with it perhaps rows that others need: the server
   * ends one that does nothing for as long as a lease lasts.
   */
  async work<T>(job: ClaimedJob, work: (tx: pg.PoolClient) => Promise<T>, isScoped: boolean): Promise<T> {
    const { database, leaseMs } = this.#options;
    await this.#mayCommit(job);
    let result: { value: T } | undefined;
    try {
      await database.transaction(
        async (tx) => {
          result = { value: await work(tx) };
          if (job.claim.lost) throw lost(job);
        },
        {
          statementMs: leaseMs,
          idleMs: leaseMs,
          opening: isScoped ? enterTenant(database, job.tenantId) : undefined,
          // The role of tenants may not complete jobs.
          closing: () => (isScoped ? `${leaveTenant}; ` : '') + completeOrRaiseText(this.#completion([job])),
        },
      );
    } catch (error) {
      if (!result || !isOutage(error) || !(await this.#wasCommitted(job))) throw asLost(error, job);
    }
    job.committed = true;
    return (result as { value: T }).value;
  }

  async statement<Row extends pg.QueryResultRow>(
    job: ClaimedJob,
    effect: EffectStatement,
  ): Promise<pg.QueryResult<Row>> {
    await this.#mayCommit(job);
    const result = await this.#effects.add({ job, ...effect });
    job.committed = true;
    return result as pg.QueryResult<Row>;
  }

  async #mayCommit(job: ClaimedJob): Promise<void> {
    if (job.ended || job.claim.lost) throw lost(job);
    if (job.committed) throw new TallymanError('ALREADY_COMMITTED', `job ${job.id} has already committed`);
    // In a lane the effect of this job must not become durable before the end of the one before it.
    if (job.lane) await this.#options.settler.laneConfirmed(job.lane);
  }

  async #commitTogether(effects: readonly Effect[]): Promise<(pg.QueryResult | Error)[]> {
    const { database } = this.#options;
    const [first] = effects;
    try {
      if (effects.some(({ job }) => job.claim.lost)) throw new LeaseLostError('a lease was taken over');
      const prepare = database.prepare;
      const { statements, places } = underTenants(effects, database);
      const completion = completeOrRaise(this.#completion(effects.map(({ job }) => job)));
      const results = await database.pipelined([
        ...statements,
        { ...completion, name: prepare ? completion.name : undefined },
      ]);
      return places.map((place) => results[place] as pg.QueryResult);
    } catch (error) {
      if (isOutage(error))
        return Promise.all(
          effects.map(async ({ job }) =>
            (await this.#wasCommitted(job)) ? unknownResult() : (error as Error),
          ),
        );
      if (effects.length === 1 && first) return [asLost(error, first.job)];
      return (await Promise.all(effects.map((effect) => this.#commitTogether([effect])))).flat();
    }
  }

  #completion(jobs: readonly ClaimedJob[]): ArgumentsOf<typeof completeOrRaiseFunction> {
    const { worker, keepMs } = this.#options;
    const inLanes = jobs.filter((job) => job.lane);
    return {
      worker,
      claims: arrayOf(new Set(jobs.map((job) => job.claim.token)), String),
      streams: arrayOf(new Set(jobs.map((job) => job.claim.stream)), String),
      positions: arrayOf(
        jobs.filter((job) => !job.lane),
        (job) => job.pos,
      ),
      lanes: arrayOf(inLanes, (job) => job.lane?.id ?? ''),
      seqs: arrayOf(inLanes, (job) => job.pos),
      keepMs,
      expected: jobs.some((job) => job.keyed) ? null : jobs.length,
    };
  }

  /** The connection was lost during the commit: check whether the commit happened. */
  async #wasCommitted(job: ClaimedJob): Promise<boolean> {
    const { database, worker } = this.#options;
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
        await pause(exponentialMs(attempt, lookAgain));
      }
    }
    return false;
  }
}

/**
 * The effects in their order, each under the tenant it belongs to, and where its result will be. What comes after them
 * runs as the user that connected. Without an effect of a tenant-scoped kind nothing is added.
 */
function underTenants(
  effects: readonly Effect[],
  database: Database,
): { readonly statements: readonly Statement[]; readonly places: readonly number[] } {
  const statements: Statement[] = [];
  const places: number[] = [];
  let current: string | undefined;
  const enter = (tenantId: string | undefined): void => {
    if (tenantId === current) return;
    statements.push({
      text: tenantId === undefined ? leaveTenant : enterTenant(database, tenantId),
      values: [],
    });
    current = tenantId;
  };
  for (const { job, text, values, isScoped } of effects) {
    enter(isScoped ? job.tenantId : undefined);
    places.push(statements.push({ text, values, name: database.prepare ? nameOf(text) : undefined }) - 1);
  }
  enter(undefined);
  return { statements, places };
}
/** Ten checks take eleven seconds: a server that restarts is back by then. */
const lookAgain = { minMs: 50, maxMs: 2_000 };

const lost = (job: ClaimedJob): LeaseLostError =>
  new LeaseLostError(`job ${job.id}: its lease was taken over, or it was cancelled; nothing was written`);

function asLost(error: unknown, job: ClaimedJob): Error {
  if (error instanceof LeaseLostError) return error;
  return notCompleted.has((error as { code?: string }).code) ? lost(job) : (error as Error);
}

/** It was committed, and the answer was lost with the connection. */
const unknownResult = (): pg.QueryResult => ({ command: '', rowCount: null, oid: 0, fields: [], rows: [] });

const names = new Map<string, string>();

/** Texts that are always the same are prepared; a program that makes a new one each time must not fill the server. */
function nameOf(text: string): string | undefined {
  const known = names.get(text);
  if (known !== undefined || names.size >= 100) return known;
  const name = `tm_effect_${createHash('sha256').update(text).digest('hex').slice(0, 16)}`;
  names.set(text, name);
  return name;
}
