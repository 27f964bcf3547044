import { EventEmitter } from 'node:events';
import { context, type Tracer } from '@opentelemetry/api';
import type { Database } from '../database/database.ts';
import { LeaseLostError, messageOf, PermanentError, TallymanError } from '../errors.ts';
import { type Claim, type ClaimAnswer, type ClaimedItem, ClaimedJob, type LaneRun } from './claim.ts';
import { RunningContext } from './context.ts';
import type { Enqueuer } from './enqueue.ts';
import { toEvent, type WorkerEvents } from './events.ts';
import { FailureReporter } from './failure-reporter.ts';
import { type Failure, readable, toFailure, toHandBack, toRefused } from './failures.ts';
import { HandlerServices } from './handler-services.ts';
import type { AnyKind } from './kind.ts';
import { LaneRunner } from './lane-runner.ts';
import { fetchPayload } from './large-payload.ts';
import { Leases } from './leases.ts';
import type { Prefetch } from './prefetch.ts';
import { ReadyItems } from './ready-items.ts';
import { running, runWithoutJobContext, type Turn } from './running.ts';
import { Settler } from './settle.ts';
import { type Checked, check } from './standard-schema.ts';
import { Starts } from './starts.ts';
import { AttemptSpan, activeTracer } from './trace.ts';

export interface RunnerOptions {
  readonly database: Database;
  readonly enqueuer: Enqueuer;
  readonly worker: string;
  readonly kinds: ReadonlyMap<string, AnyKind>;
  readonly concurrency: number;
  /** Jobs that a lane runs before it gives up its slot to others. */
  readonly laneBatch: number;
  readonly leaseMs: number;
  readonly keepMs: number;
  readonly prefetch: Prefetch;
  /** Work may be waiting that nobody has claimed yet. */
  readonly othersMayWait: () => boolean;
  /** There is room for more. */
  readonly onRoom: () => void;
  /** There may be work that a claim would find now. */
  readonly onWork: () => void;
  /** An outcome has been committed to the database. */
  readonly onConfirmed: () => void;
  /** Takes the external lock of a lane, and hands the lane to `take`. Undefined: lanes have none. */
  readonly lockLane: ((lane: LaneRun) => void) | undefined;
  /** The lane was let go, or lost. */
  readonly onLaneGone: (lane: LaneRun) => void;
  /** An isolated item has left this worker. */
  readonly onIsolatedGone: (claim: Claim) => void;
}

/**
 * Runs what the worker has claimed, `concurrency` items at a time. A free job is an item; so is a lane, whose jobs
 * run one after another in its slot.
 *
 *   ready ──▶ running ──▶ settler (success) ──▶ confirmed
 *                    └──▶ reporter (throw, timeout) ──▶ again later · FAILED · DEAD_LETTER
 *
 * Each attempt has one outcome; what a handler does after its timeout or after losing its lease is ignored.
 * What happens in the slot of a lane is decided in `LaneRunner`.
 */
export class Runner {
  readonly events = new EventEmitter<WorkerEvents>();
  readonly leases = new Leases(this.events);
  readonly settler: Settler;
  readonly #options: RunnerOptions;
  readonly #reporter: FailureReporter;
  readonly #starts: Starts;
  readonly #lanes: LaneRunner;
  readonly #services: HandlerServices;
  readonly #running = new Set<ClaimedJob>();
  readonly #unknown: ClaimedItem[] = [];
  readonly #ready = new ReadyItems();
  #slots = 0;
  #load = 0;
  #failing = 0;
  /**
   * Synchronous handlers share one async context, because creating one costs more than running them. The first handler
   * that returns a promise keeps it.
   */
  #shared: Turn | undefined;
  #sweeper: NodeJS.Timeout | undefined;
  /** As of the last claim, which is recent enough: checking for every job costs time. */
  #tracer: Tracer | undefined;

  constructor(options: RunnerOptions) {
    this.#options = options;
    const { database, worker, keepMs } = options;
    this.events.on('error', () => {});
    this.settler = new Settler(database, worker, keepMs, {
      onLost: (claims) => this.leases.lose(claims, 'its lease was taken over'),
      onSettled: (jobs) => this.#settled(jobs),
      onRequeued: () => this.#options.onWork(),
      onKept: (lane) => this.#lanes.kept(lane),
      onRefused: (job, refusal) => this.#refused(job, refusal),
      onError: (error) => this.events.emit('error', error as Error),
    });
    this.#reporter = new FailureReporter({ database, worker, keepMs, events: this.events });
    this.#starts = new Starts(database, worker, (error) => this.events.emit('error', error as Error));
    const { settler } = this;
    this.#services = new HandlerServices({ ...options, settler });
    this.#lanes = new LaneRunner({
      ...{
        database,
        worker,
        laneBatch: options.laneBatch,
        settler,
        reporter: this.#reporter,
        leases: this.leases,
      },
      slots: {
        start: (job) => this.#start(job),
        free: (lane) => this.#free(lane),
        queue: (lane) => this.#queueLane(lane),
        pump: () => this.pump(),
        othersWait: () => !this.#ready.isEmpty || options.othersMayWait(),
        onWork: options.onWork,
      },
      onError: (error) => this.events.emit('error', error as Error),
    });
    if ([...options.kinds.values()].some((kind) => kind.timeoutMs !== undefined)) {
      this.#sweeper = setInterval(() => this.#endOverdue(), 100);
      this.#sweeper.unref();
    }
  }

  /** How much of the prefetch budget is used: free jobs without an outcome, and lanes by what they run soon. */
  get held(): number {
    return this.#load;
  }

  /** Nothing is held, and nothing is being written. */
  get quiet(): boolean {
    return (
      this.#slots === 0 && this.#load === 0 && this.#failing === 0 && !this.settler.busy && this.#lanes.idle
    );
  }

  /** Queues the claimed items, isolated ones in front; `pump` starts them. */
  take(answer: Pick<ClaimAnswer, 'claims' | 'items'>): void {
    this.#tracer = activeTracer();
    this.leases.add(answer.claims);
    const perSlot = this.#options.prefetch.perSlot;
    for (const item of answer.items) {
      if (!(item instanceof ClaimedJob)) item.weight = Math.max(1, Math.min(item.jobs.length, perSlot));
      this.#load += weightOf(item);
      if (item.claim.isolated) this.#ready.putFirst(item);
      else this.#ready.put(item);
    }
  }

  /** Starts as many queued items as may run at once. Handlers that return synchronously are done when this returns. */
  pump(): void {
    if (this.#slots < this.#options.concurrency && !this.#ready.isEmpty) {
      this.#shared = { correlationId: undefined };
      running.run(this.#shared, () => this.#startReady());
      if (this.#shared) this.#shared.correlationId = undefined;
      this.#shared = undefined;
    }
    this.#options.onRoom();
  }

  #startReady(): void {
    const { concurrency } = this.#options;
    while (this.#slots < concurrency) {
      const item = this.#ready.take();
      if (item === undefined) return;
      this.#slots += 1;
      if (item instanceof ClaimedJob) this.#start(item);
      else this.#lanes.begin(item);
    }
  }

  // ── one attempt ────────────────────────────────────────────────────────────────────────────────────────────

  #start(job: ClaimedJob): void {
    if (job.claim.lost || job.ended) return this.#leave(job);
    const kind = this.#options.kinds.get(job.kind);
    if (!kind) {
      job.ended = true;
      this.#unknown.push(job.lane ?? job);
      return this.#free(job.lane ?? job);
    }
    if (job.superseded) {
      job.ended = true;
      this.settler.complete(job);
      return this.#after(job);
    }
    if (job.isStartRecorded) void this.#startRecorded(job, kind);
    else if (job.payload === undefined) void this.#fetch(job).then((text) => this.#runLate(job, kind, text));
    else this.#run(job, kind, job.payload);
  }

  /** If the worker dies from now on, it is known that this job had started. */
  async #startRecorded(job: ClaimedJob, kind: AnyKind): Promise<void> {
    const isHeld = await this.#starts.record(job);
    if (!isHeld) this.leases.lose([job.claim], 'its lease was taken over');
    if (job.payload === undefined) return this.#runLate(job, kind, await this.#fetch(job));
    if (job.claim.lost || job.ended) this.#leave(job);
    else this.#run(job, kind, job.payload);
    this.pump();
  }

  #recordLoneStart(): void {
    if (this.#load === 1)
      this.#starts.recordLone(() =>
        this.#load === 1 && this.#running.size === 1 ? [...this.#running][0] : undefined,
      );
  }

  #run(job: ClaimedJob, kind: AnyKind, payload: unknown): void {
    job.startedAt = performance.now();
    if (this.#tracer) job.span = new AttemptSpan(this.#tracer, job);
    if (this.events.listenerCount('started') > 0)
      runWithoutJobContext(() => this.events.emit('started', toEvent(job)));
    let result: unknown;
    try {
      const checked = kind.schema && check(kind.schema, payload);
      if (checked instanceof Promise) result = checked.then((c) => this.#call(kind, job, accepted(kind, c)));
      else result = this.#call(kind, job, checked ? accepted(kind, checked) : payload);
    } catch (error) {
      return this.#failed(job, kind, error);
    }
    if (!isPromise(result)) return this.#succeeded(job);
    this.#running.add(job);
    this.#recordLoneStart();
    result.then(
      () => {
        this.#succeeded(job);
        this.pump();
      },
      (error: unknown) => {
        this.#failed(job, kind, error);
        this.pump();
      },
    );
  }

  #fetch(job: ClaimedJob): Promise<string | undefined> {
    return fetchPayload(this.#options.database, job, (error) => this.events.emit('error', error as Error));
  }

  #runLate(job: ClaimedJob, kind: AnyKind, text: string | undefined): void {
    if (text === undefined || job.claim.lost || job.ended) this.#leave(job);
    else this.#run(job, kind, JSON.parse(text));
    this.pump();
  }

  #call(kind: AnyKind, job: ClaimedJob, payload: unknown): unknown {
    const given = new RunningContext(job, this.#services);
    if (job.span)
      return context.with(job.span.context, () =>
        running.run(job.correlationId, kind.handler, payload, given),
      );
    const shared = this.#shared;
    if (!shared) {
      // Not run(), which also restores the context and costs twice as much. Only handlers read it, and each enters its own.
      running.enterWith(job.correlationId);
      return kind.handler(payload, given);
    }
    shared.correlationId = job.correlationId;
    const result = kind.handler(payload, given);
    // What this handler still does will read the shared context, so the next handlers get another one.
    if (isPromise(result)) this.#shared = undefined;
    return result;
  }

  #succeeded(job: ClaimedJob): void {
    if (job.ended) return;
    if (job.timedOut && !job.committed) {
      const kind = this.#options.kinds.get(job.kind);
      if (kind) return this.#failed(job, kind, job.timedOut);
    }
    this.#ended(job);
    if (job.committed) {
      if (!job.lane) this.settler.dealtWith(job.claim);
      runWithoutJobContext(() => this.#settled(() => [job]));
    } else {
      this.settler.complete(job);
    }
    this.#after(job);
  }

  #failed(job: ClaimedJob, kind: AnyKind, reason: unknown): void {
    if (job.ended) return;
    const thrown = readable(reason);
    if (job.committed) {
      this.#options.database.logger.warn(
        { job: job.id, kind: job.kind, error: messageOf(thrown) },
        'a handler threw after its commit; the job is done all the same',
      );
      return this.#succeeded(job);
    }
    job.span?.failed(thrown);
    this.#ended(job);
    this.#failing += 1;
    const isOutage = this.#options.database.isOwnOutage(thrown);
    const failure = isOutage ? toHandBack(job, thrown) : toFailure(job, thrown, kind.backoff);
    const { lane } = job;
    void runWithoutJobContext(() =>
      lane ? this.#lanes.failed(failure, lane) : this.#failFree(failure),
    ).finally(() => {
      this.#failing -= 1;
      this.#options.onConfirmed();
      this.#options.onRoom();
    });
    this.#free(job.lane ?? job);
  }

  /** The attempt has its outcome. */
  #ended(job: ClaimedJob): void {
    job.ended = true;
    job.span?.end();
    this.#running.delete(job);
    this.#options.prefetch.took(performance.now() - job.startedAt);
  }

  /** Continues after a job has ended: with the next of its lane, or by freeing the slot. */
  #after(job: ClaimedJob): void {
    if (job.lane) this.#lanes.ended(job.lane);
    else this.#free(job);
  }

  /** More was found in a lane that had given its slot up and could not be let go. */
  #queueLane(lane: LaneRun): void {
    if (this.#options.lockLane) return this.#options.lockLane(lane);
    this.take({ claims: [], items: [lane] });
    this.pump();
  }

  /** Skips a job that is no longer ours to run. */
  #leave(job: ClaimedJob): void {
    if (!job.lane) this.settler.dealtWith(job.claim);
    this.#after(job);
  }

  #free(item: ClaimedItem): void {
    this.#slots -= 1;
    this.#load -= weightOf(item);
    if (this.#running.size === 1) this.#recordLoneStart();
    if (item.claim.isolated) this.#options.onIsolatedGone(item.claim);
    if (!(item instanceof ClaimedJob)) this.#options.onLaneGone(item);
  }

  // ── outcomes ───────────────────────────────────────────────────────────────────────────────────────────────

  #settled(jobs: () => readonly ClaimedJob[]): void {
    for (const event of ['succeeded', 'superseded'] as const) {
      if (this.events.listenerCount(event) === 0) continue;
      for (const job of jobs())
        if (job.superseded === (event === 'superseded')) this.events.emit(event, toEvent(job));
    }
    this.leases.forgetDone();
    this.#options.onConfirmed();
    this.#options.onRoom();
  }

  async #failFree(failure: Failure): Promise<void> {
    const { outcome } = await this.#reporter.report(failure);
    if (outcome === 'LOST') this.leases.lose([failure.job.claim], 'its lease was taken over');
    this.settler.dealtWith(failure.job.claim);
  }

  /** The settler has tried the job by itself, and PostgreSQL still refuses it. */
  async #refused(job: ClaimedJob, refusal: unknown): Promise<void> {
    const { outcome } = await this.#reporter.report({
      ...toRefused(job, 'SETTLE_REFUSED', refusal),
      isLaneKept: true,
    });
    if (outcome === 'LOST') this.leases.lose([job.claim], 'its lease was taken over');
  }

  // ── overdue, unknown and unfinished work ──────────────────────────────────────────────────────────────────────────────────

  #endOverdue(): void {
    const now = performance.now();
    for (const job of this.#running) {
      const kind = this.#options.kinds.get(job.kind);
      if (kind?.timeoutMs === undefined || now - job.startedAt < kind.timeoutMs || job.timedOut) continue;
      const error = new TallymanError('TIMEOUT', `ran longer than ${kind.timeoutMs} ms`);
      job.timedOut = error;
      job.abort(error);
      // Otherwise its slot and its lane are kept until the handler returns.
      if (kind.onTimeout === 'abandon') this.#failed(job, kind, error);
    }
    this.pump();
  }

  /** Items whose kind is unknown here, since the last call. */
  takeUnknown(): ClaimedItem[] {
    return this.#unknown.splice(0);
  }

  /** They could not be handed over; to be tried again. */
  returnUnknown(items: readonly ClaimedItem[]): void {
    this.#unknown.push(...items);
  }

  /** The item left this worker by other means than a settle. */
  gone(item: ClaimedItem): void {
    this.settler.dealtWith(item.claim);
  }

  /** What is claimed and not started; it is no longer run. */
  takeWaiting(): ClaimedItem[] {
    const items = this.#ready.takeAll();
    for (const item of items) this.#load -= weightOf(item);
    return [...items, ...this.#lanes.takeKept()];
  }

  /** Gives up on what still runs: its signal fires, its outcome no longer counts. */
  takeRunning(): ClaimedItem[] {
    return [...this.#running].map((job) => {
      job.ended = true;
      this.#running.delete(job);
      const error = new LeaseLostError(`job ${job.id}: the worker is stopping`);
      job.abort(error);
      job.span?.failed(error);
      job.span?.end();
      return job.lane ?? job;
    });
  }

  stop(): void {
    clearInterval(this.#sweeper);
    this.#starts.stop();
    this.#lanes.stop();
  }
}

function accepted(kind: AnyKind, checked: Checked<unknown>): unknown {
  if (checked.ok) return checked.value;
  throw new PermanentError(
    'VALIDATION_ERROR',
    `payload of kind "${kind.name}" is refused at ${checked.path || 'its root'}: ${checked.problem}`,
  );
}

const isPromise = (result: unknown): result is Promise<unknown> =>
  result !== null && typeof result === 'object' && 'then' in result;

const weightOf = (item: ClaimedItem): number => (item instanceof ClaimedJob ? 1 : item.weight);
