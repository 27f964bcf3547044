import { Counter, Histogram, type Registry } from 'prom-client';
import type { JobEvent } from '../engine/jobs/events.ts';
import type { Worker } from '../engine/jobs/worker.ts';

export const outcomes = [
  'succeeded',
  'superseded',
  'retried',
  'failed',
  'dead',
  'discarded',
  'handed_back',
] as const;
export type Outcome = (typeof outcomes)[number];

const jobSeconds = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];
const claimSeconds = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];

/** The metrics of one kind, looked up once: they change with every job. */
interface OfKind {
  readonly settled: Readonly<Record<Outcome, Counter.Internal>>;
  readonly seconds: Histogram.Internal<string>;
}

/** Metrics of the workers of this process. */
export class WorkerMetrics {
  readonly #settled: Counter;
  readonly #seconds: Histogram;
  readonly #claimed: Counter;
  readonly #claimSeconds: Histogram;
  readonly #leasesLost: Counter;
  readonly #recoveredWorkers: Counter;
  readonly #recoveredItems: Counter;
  readonly #unknownKinds: Counter;
  readonly #wakeups: Counter;
  readonly #kinds = new Map<string, OfKind>();
  readonly #observed = new WeakSet<Worker>();

  constructor(registry: Registry) {
    const registers = [registry];
    this.#claimed = new Counter({
      name: 'tallyman_jobs_claimed_total',
      help: 'Jobs that workers of this process have claimed, those prefetched in lanes included.',
      registers,
    });
    this.#claimSeconds = new Histogram({
      name: 'tallyman_claim_duration_seconds',
      help: 'Time that claims took which found work.',
      buckets: claimSeconds,
      registers,
    });
    this.#settled = new Counter({
      name: 'tallyman_jobs_settled_total',
      help: 'Attempts that have their outcome: succeeded, superseded, retried, failed, dead, discarded, or handed_back because the database was down.',
      labelNames: ['kind', 'outcome'],
      registers,
    });
    this.#seconds = new Histogram({
      name: 'tallyman_job_duration_seconds',
      help: 'Time from the start of a handler until the outcome was confirmed in the database.',
      labelNames: ['kind'],
      buckets: jobSeconds,
      registers,
    });
    this.#leasesLost = new Counter({
      name: 'tallyman_leases_lost_total',
      help: 'Jobs whose result was discarded because the lease ran out or went to another worker.',
      labelNames: ['kind'],
      registers,
    });
    this.#recoveredWorkers = new Counter({
      name: 'tallyman_recovered_workers_total',
      help: 'Workers that were gone, and whose work was taken over.',
      registers,
    });
    this.#recoveredItems = new Counter({
      name: 'tallyman_recovered_items_total',
      help: 'Jobs and lanes that were taken over.',
      registers,
    });
    this.#unknownKinds = new Counter({
      name: 'tallyman_unknown_kinds_total',
      help: 'Times that jobs of a kind were left for another worker because this one does not know it.',
      registers,
    });
    this.#wakeups = new Counter({
      name: 'tallyman_wakeups_total',
      help: 'Hints received that a queue may have work, by where they came from.',
      labelNames: ['source'],
      registers,
    });
  }

  /** Counts what the worker does from now on. A second call does nothing. */
  observe(worker: Worker): void {
    if (this.#observed.has(worker)) return;
    this.#observed.add(worker);
    for (const kind of worker.kinds) this.#of(kind);
    for (const outcome of ['succeeded', 'retried', 'failed', 'dead'] as const)
      worker.events.on(outcome, (event: JobEvent) => {
        const kind = this.#of(event.kind);
        kind.settled[outcome].inc();
        kind.seconds.observe(event.durationMs / 1000);
      });
    worker.events.on('handedBack', (event) => this.#of(event.kind).settled.handed_back.inc());
    worker.events.on('superseded', (event) => this.#of(event.kind).settled.superseded.inc());
    worker.events.on('discarded', (event) => {
      this.#of(event.kind).settled.discarded.inc();
      if (event.reason !== 'cancelled') this.#leasesLost.inc({ kind: event.kind });
    });
    worker.events.on('claimed', ({ jobs, durationMs }) => {
      this.#claimed.inc(jobs);
      if (durationMs !== undefined) this.#claimSeconds.observe(durationMs / 1000);
    });
    worker.events.on('recovered', ({ freed }) => {
      this.#recoveredWorkers.inc();
      this.#recoveredItems.inc(freed);
    });
    worker.events.on('unknownKind', () => this.#unknownKinds.inc());
    worker.events.on('wakeup', ({ source }) => this.#wakeups.inc({ source }));
  }

  #of(kind: string): OfKind {
    let found = this.#kinds.get(kind);
    if (!found) {
      const settled = Object.fromEntries(
        outcomes.map((outcome) => [outcome, this.#settled.labels({ kind, outcome })]),
      ) as Record<Outcome, Counter.Internal>;
      // Prometheus sees no increase when a series first appears with 1, so each starts at 0.
      for (const counter of Object.values(settled)) counter.inc(0);
      this.#leasesLost.inc({ kind }, 0);
      found = { settled, seconds: this.#seconds.labels({ kind }) };
      this.#kinds.set(kind, found);
    }
    return found;
  }
}
