import { setTimeout as sleep } from 'node:timers/promises';
import { Batcher } from '../../engine/batching/batcher.ts';
import { type Database, isConnectionError } from '../../engine/database/database.ts';
import { codeOf, statementRetry } from '../../engine/database/outage.ts';
import type { Pipeline } from '../../engine/database/pipeline.ts';
import { enterTenant } from '../../engine/database/tenant.ts';
import { TallymanError } from '../../engine/errors.ts';
import { BusyLanes, lockOf } from '../../engine/jobs/busy-lanes.ts';
import { exponentialMs } from '../../engine/resilience/backoff.ts';
import type { Hint } from '../../engine/wakeups/wakeup.ts';
import { pausesBesideOthers } from '../access/pauses.ts';
import type { RecentTenants } from '../access/recent-tenants.ts';
import { Turns } from '../access/turns.ts';
import {
  type EnqueueRequest,
  emitStatementOf,
  type Outcome,
  type OutcomeRow,
  outcomesOf,
  statementOf,
} from './statement.ts';

/** What becomes of a request. `stale`: a kind has changed; prepare it again. */
export type Settled = Exclude<Outcome, { type: 'skipped' | 'busy' }>;

type Result = Settled | Error | Promise<Settled>;

interface Attempt {
  /** How long to wait for locks; 0: not for lanes, and hardly for anything else. */
  readonly waitMs: 0 | 2000;
  /** How often the connection was lost under it. */
  readonly lost: number;
}

const mostRequests = 200;
/** Beside other tenants. Their answers go out in one go, and the next requests come in one go. */
const mostOfOneTenant = 32;
/** A larger request has a transaction of its own: its neighbours would wait for it. */
const mostSharedBytes = 16 * 1024;
/** A request waits so long for a lane that another transaction has. */
const patienceMs = 30_000;
const mostLost = 3;

/**
 * Requests that only enqueue, or emit an event, share transactions: those that arrive while a commit is under way go into the next one, whatever
 * their tenants. Each tenant's part is a statement of its own, under the tenant's role and name, so that row-level
 * security holds as it does for a request alone. All statements of a transaction, with `begin` and `commit`, are one round trip.
 *
 * A request gets its answer after its commit, and its own: what PostgreSQL refuses is divided until the request at fault is
 * alone. One whose lane another transaction has waits by itself.
 */
export class SharedCommits {
  readonly #database: Database;
  readonly #committed: (hints: readonly Hint[]) => void;
  readonly #batcher: Batcher<EnqueueRequest, Settled>;
  readonly #alone: Turns;
  readonly #busy: BusyLanes<EnqueueRequest, Settled>;
  readonly #busySince = new WeakMap<EnqueueRequest, number>();
  /** For two shared transactions and two with a single request. */
  readonly #quick: Pipeline;
  /** For those that wait for locks. */
  readonly #patient: Pipeline;

  constructor(
    database: Database,
    {
      recent,
      waiting,
      largePercent,
      committed,
    }: {
      readonly recent: RecentTenants;
      /** Large requests of one tenant that may wait. */
      readonly waiting: number;
      /** Share of the time that the large requests of one tenant take beside others. */
      readonly largePercent: number;
      /** Hears of new jobs, one for each queue. */
      readonly committed: (hints: readonly Hint[]) => void;
    },
  ) {
    this.#database = database;
    this.#committed = committed;
    // Two keep the disk busy; beside other tenants one has to do.
    this.#alone = new Turns({
      total: 2,
      perTenant: (tenantId) => (recent.isAlone(tenantId) ? 2 : 1),
      waiting,
      pauseMs: pausesBesideOthers(recent, largePercent),
    });
    this.#quick = database.openPipeline(4);
    this.#patient = database.openPipeline(2);
    this.#batcher = new Batcher({
      send: (requests) => this.#write(requests, { waitMs: 0, lost: 0 }),
      maxBatch: mostRequests,
      maxInFlight: 2,
      share: {
        groupOf: ({ tenantId }) => tenantId,
        most: (tenantId) => (recent.isAlone(tenantId) ? mostRequests : mostOfOneTenant),
      },
    });
    this.#busy = new BusyLanes((requests) => this.#writePatiently(requests), nameOf);
  }

  /** Resolves after the commit. */
  async add(request: EnqueueRequest): Promise<Settled> {
    const waiting = this.#busy.follow(request);
    if (waiting) return waiting;
    if (isSmall(request)) return this.#batcher.add(request);
    const [result] = await this.#alone.run(request.tenantId, () =>
      this.#write([request], { waitMs: 0, lost: 0 }),
    );
    if (result instanceof Error) throw result;
    return result as Settled | Promise<Settled>;
  }

  async close(): Promise<void> {
    await Promise.all([this.#quick.close(), this.#patient.close()]);
  }

  /** Of several requests with one key, the first is written; the others get its answer. */
  async #write(requests: readonly EnqueueRequest[], attempt: Attempt): Promise<Result[]> {
    const firsts = new Map<string, EnqueueRequest>();
    const distinct = requests.filter((request) => {
      const name = keyOf(request);
      if (name === undefined) return true;
      if (firsts.has(name)) return false;
      firsts.set(name, request);
      return true;
    });
    const results = await this.#attempt(distinct, attempt);
    return requests.map((request) => {
      const own = results.get(request);
      if (own !== undefined) return own;
      const first = firsts.get(keyOf(request) ?? '') as EnqueueRequest;
      return this.#repeated(request, first, results.get(first) as Result);
    });
  }

  async #repeated(request: EnqueueRequest, first: EnqueueRequest, result: Result): Promise<Settled> {
    let settled: Settled;
    try {
      if (result instanceof Error) throw result;
      settled = await result;
    } catch {
      // Refused, so nothing is kept under the key: this one is tried for itself.
      return this.add(request);
    }
    if (settled.type !== 'done') return settled;
    const { status } = first.event;
    return { type: 'taken', digest: first.digest as Buffer, status, kept: settled.enqueued };
  }

  async #attempt(
    requests: readonly EnqueueRequest[],
    attempt: Attempt,
  ): Promise<Map<EnqueueRequest, Result>> {
    let outcomes: readonly Outcome[];
    try {
      outcomes = await this.#commit(requests, attempt.waitMs);
    } catch (error) {
      return this.#failed(requests, attempt, error as Error);
    }
    const results = new Map<EnqueueRequest, Result>();
    const skipped: EnqueueRequest[] = [];
    for (const [i, request] of requests.entries()) {
      const outcome = outcomes[i] as Outcome;
      if (outcome.type === 'skipped') skipped.push(request);
      else results.set(request, outcome.type === 'busy' ? this.#wait(request) : outcome);
    }
    if (skipped.length === 0) return results;
    return new Map([...results, ...(await this.#attempt(skipped, attempt))]);
  }

  /** One transaction: for each tenant its name, then a statement for its jobs and one for its events. */
  async #commit(requests: readonly EnqueueRequest[], waitMs: 0 | 2000): Promise<readonly Outcome[]> {
    const parts = partsOf(requests);
    const pipeline = waitMs === 0 ? this.#quick : this.#patient;
    const statements = parts.flatMap((own) => [
      { text: enterTenant(this.#database, own[0]?.tenantId ?? ''), values: [] },
      (own[0]?.emitted ? emitStatementOf : statementOf)(own, waitMs, this.#database.prepare),
    ]);
    const answers = await pipeline.transaction(statements);
    const outcomes = new Map<EnqueueRequest, Outcome>();
    for (const [i, own] of parts.entries()) {
      const found = outcomesOf(answers[2 * i + 1]?.rows as OutcomeRow[]);
      for (const [j, request] of own.entries()) outcomes.set(request, found[j] as Outcome);
    }
    const hints = hintsOf(outcomes);
    if (hints.length > 0) this.#committed(hints);
    return requests.map((request) => outcomes.get(request) as Outcome);
  }

  /** Nothing was written, or the connection was lost and nobody knows. */
  async #failed(
    requests: readonly EnqueueRequest[],
    attempt: Attempt,
    error: Error,
  ): Promise<Map<EnqueueRequest, Result>> {
    if (isConnectionError(error)) return this.#lost(requests, attempt, error);
    if (attempt.waitMs > 0 && isLockTimeout(error)) throw error;
    const [first] = requests;
    if (requests.length === 1 && first)
      return new Map([[first, isContention(error) && attempt.waitMs === 0 ? this.#wait(first) : error]]);
    const parts = await Promise.all(
      halvesOf(requests).map((part) =>
        this.#attempt(part, attempt).catch((refusal: Error) => new Map(part.map((each) => [each, refusal]))),
      ),
    );
    return new Map(parts.flatMap((part) => [...part]));
  }

  /** Only an Idempotency-Key makes it safe to write again: if the first commit did happen, its answer is under the key. */
  async #lost(
    requests: readonly EnqueueRequest[],
    { waitMs, lost }: Attempt,
    error: Error,
  ): Promise<Map<EnqueueRequest, Result>> {
    if (isRefused(error)) return new Map(requests.map((request) => [request, error]));
    const [repeatable, others] = [
      requests.filter(({ key }) => key !== undefined && lost < mostLost),
      requests.filter(({ key }) => key === undefined || lost >= mostLost),
    ];
    const unknown = others.map((request): [EnqueueRequest, Result] => [request, outcomeUnknown(error)]);
    if (repeatable.length === 0) return new Map(unknown);
    await sleep(exponentialMs(lost + 1, statementRetry));
    return new Map([...unknown, ...(await this.#attempt(repeatable, { waitMs, lost: lost + 1 }))]);
  }

  #wait(request: EnqueueRequest): Promise<Settled> {
    if (!this.#busySince.has(request)) this.#busySince.set(request, performance.now());
    return this.#busy.wait(request);
  }

  async #writePatiently(requests: EnqueueRequest[]): Promise<Promise<Settled>[]> {
    const now = performance.now();
    const isLate = (request: EnqueueRequest) => now - (this.#busySince.get(request) ?? now) > patienceMs;
    if (requests.some(isLate))
      return requests.map((request) => (isLate(request) ? Promise.reject(laneBusy()) : this.#wait(request)));
    const results = await this.#write(requests, { waitMs: 2000, lost: 0 });
    return results.map((result, i) => {
      if (!(result instanceof Error)) return Promise.resolve(result);
      return isContention(result) ? this.#wait(requests[i] as EnqueueRequest) : Promise.reject(result);
    });
  }
}

function hintsOf(outcomes: ReadonlyMap<EnqueueRequest, Outcome>): readonly Hint[] {
  const last = new Map<string, Hint>();
  for (const [{ jobs }, outcome] of outcomes)
    if (outcome.type === 'done')
      for (const [i, { id, existing }] of outcome.enqueued.entries()) {
        const queue = jobs[i]?.queue;
        if (queue !== undefined && !existing) last.set(queue, { queue, jobId: id });
      }
  return [...last.values()];
}

const isSmall = ({ jobs, emitted }: EnqueueRequest): boolean =>
  emitted
    ? emitted.payload.length <= mostSharedBytes
    : jobs.length === 1 && (jobs[0]?.row.p.length ?? 0) <= mostSharedBytes;

/** What goes into one statement: requests of one tenant, jobs and events apart. */
function partsOf(requests: readonly EnqueueRequest[]): (readonly EnqueueRequest[])[] {
  const parts = Map.groupBy(
    requests,
    ({ tenantId, emitted }) => `${emitted ? 'events' : 'jobs'} ${tenantId}`,
  );
  return [...parts.values()];
}

const keyOf = ({ tenantId, key }: EnqueueRequest): string | undefined =>
  key === undefined ? undefined : JSON.stringify([tenantId, key]);

let requestsSoFar = 0;

/** What a request may have to wait for. One with many jobs waits by itself. */
function nameOf(request: EnqueueRequest): string {
  const { emitted, tenantId } = request;
  if (emitted) return emitted.id === undefined ? `key ${keyOf(request)}` : `event ${emitted.id} ${tenantId}`;
  const [job] = request.jobs;
  if (!job || request.jobs.length > 1) {
    requestsSoFar += 1;
    return `request ${requestsSoFar}`;
  }
  return job.plain ? `key ${keyOf(request)}` : lockOf(job);
}

/** Statements apart first, then the requests of one. */
function halvesOf(requests: readonly EnqueueRequest[]): (readonly EnqueueRequest[])[] {
  const parts = partsOf(requests);
  if (parts.length > 1) return parts;
  const half = Math.ceil(requests.length / 2);
  return [requests.slice(0, half), requests.slice(half)];
}

/** A lock was not granted in time. */
const isLockTimeout = (error: unknown): boolean => codeOf(error) === '55P03';

/** Others were in the way; the same again may succeed. 23505: an Idempotency-Key was used in the meantime. */
const isContention = (error: unknown): boolean => /^(55P03|40P01|40001|23505)$/.test(codeOf(error));

/** The connection was not even opened, so nothing was sent. */
const isRefused = (error: unknown): boolean =>
  /^(ECONNREFUSED|EHOSTUNREACH|ENETUNREACH|ENOTFOUND|EAI_AGAIN|57P03|53300)$/.test(codeOf(error));

const outcomeUnknown = (error: unknown): TallymanError =>
  new TallymanError(
    'OUTCOME_UNKNOWN',
    'the connection to the database was lost during the commit: the jobs, or the event, may or may not be there. Send an Idempotency-Key, ' +
      'and you can repeat the request safely.',
    { cause: error },
  );

const laneBusy = (): TallymanError =>
  new TallymanError(
    'LANE_BUSY',
    `another transaction has held the lane, the key or the id for ${patienceMs / 1000} s; nothing was written, try again`,
  );
