import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { type Backlog, lookAtBacklog } from '../engine/jobs/backlog.ts';
import type { Worker } from '../engine/jobs/worker.ts';
import type { Tallyman } from '../engine/tallyman.ts';
import { SharedLook } from './shared-look.ts';
import { WorkerMetrics } from './worker-metrics.ts';

export interface MetricsOptions {
  /** How long numbers from the database are cached, for any number of scrapers. Default 5000. */
  readonly cacheMs?: number;
  /** A scrape waits for the database no longer than this and then answers with the last numbers. Default 3000. */
  readonly patienceMs?: number;
  /** Counts are exact up to here and estimated beyond; see engine/jobs/backlog.ts. Default 10,000. */
  readonly countLimit?: number;
  /** Pages of 8 KiB that an estimate reads. Default 500. */
  readonly samplePages?: number;
  /** CPU, memory, event loop and garbage collection of this process, under their usual names. Default true. */
  readonly process?: boolean;
}

const httpSeconds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
const httpMethods = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS']);

/**
 * The metrics that Prometheus scrapes, on their own registry.
 *
 * Labels are queue, kind, outcome and the like, whose values people define. Never a job, a lane or a tenant: each value
 * of a label is a time series that stays.
 *
 * @example
 * const metrics = new Metrics(tallyman);
 * metrics.observe(worker);
 * response.setHeader('content-type', metrics.contentType).end(await metrics.text());
 */
export class Metrics {
  /** Other components add their metrics here. */
  readonly registry = new Registry();
  readonly #tallyman: Tallyman;
  readonly #workers: WorkerMetrics;
  readonly #http: Histogram;

  constructor(tallyman: Tallyman, options: MetricsOptions = {}) {
    this.#tallyman = tallyman;
    this.#workers = new WorkerMetrics(this.registry);
    this.#http = new Histogram({
      name: 'tallyman_http_request_duration_seconds',
      help: 'Time that HTTP requests took, by route and class of status.',
      labelNames: ['method', 'route', 'status'],
      buckets: httpSeconds,
      registers: [this.registry],
    });
    this.#exposeBacklog(options);
    this.#exposePool();
    if (options.process ?? true) collectDefaultMetrics({ register: this.registry });
  }

  get contentType(): string {
    return this.registry.contentType;
  }

  /** Never rejects because the database is down: see `tallyman_database_up`. */
  text(): Promise<string> {
    return this.registry.metrics();
  }

  /** Counts what the worker does from now on. */
  observe(worker: Worker): void {
    this.#workers.observe(worker);
  }

  /** The server calls it once per request. `route` is the pattern that matched (`/jobs/:id`), never the address. */
  http(method: string, route: string | undefined, status: number, seconds: number): void {
    this.#http.observe(
      {
        method: httpMethods.has(method) ? method : 'other',
        route: route || 'none',
        status: `${Math.floor(status / 100)}xx`,
      },
      seconds,
    );
  }

  /** A counter for another component. `name` without the prefix, with its unit: `webhooks_sent_total`. */
  counter<Label extends string = never>(
    name: string,
    help: string,
    labelNames: readonly Label[] = [],
  ): Counter<Label> {
    return new Counter({ name: `tallyman_${name}`, help, labelNames, registers: [this.registry] });
  }

  /** All gauges wait for one shared query: the order in which they are collected does not matter. */
  #exposeBacklog(options: MetricsOptions): void {
    const patienceMs = options.patienceMs ?? 3000;
    const look = new SharedLook(
      () =>
        lookAtBacklog(this.#tallyman.database, {
          countLimit: options.countLimit ?? 10_000,
          samplePages: options.samplePages ?? 500,
          timeoutMs: patienceMs,
        }),
      { cacheMs: options.cacheMs ?? 5000, patienceMs },
    );
    const registers = [this.registry];
    const gauge = <Label extends string>(
      name: string,
      help: string,
      labelNames: Label[],
      fill: (gauge: Gauge<Label>, backlog: Backlog) => void,
    ) =>
      new Gauge({
        name,
        help,
        labelNames,
        registers,
        async collect() {
          const { last } = await look.answer();
          if (!last) return;
          // Reset: a queue or kind without jobs would otherwise keep its last number.
          this.reset();
          fill(this, last);
        },
      });
    new Gauge({
      name: 'tallyman_database_up',
      help: '1 if the database answered when last asked; 0 tells that the numbers read from it are old.',
      registers,
      async collect() {
        this.set((await look.answer()).well ? 1 : 0);
      },
    });
    gauge(
      'tallyman_backlog_timestamp_seconds',
      'When the numbers of queues, lanes and dead letters were read from the database.',
      [],
      (self, { at }) => self.set(at.getTime() / 1000),
    );
    gauge(
      'tallyman_queue_jobs',
      'Jobs by queue and state: ready, running or waiting. Large numbers are estimates.',
      ['queue', 'state'],
      (self, { queues }) => {
        for (const [queue, found] of queues)
          for (const state of ['ready', 'running', 'waiting'] as const)
            self.set({ queue, state }, found[state]);
      },
    );
    gauge(
      'tallyman_queue_oldest_ready_seconds',
      'How long the first job in line has been ready; 0 if none is.',
      ['queue'],
      (self, { queues }) => {
        for (const [queue, { oldestReadySeconds }] of queues) self.set({ queue }, oldestReadySeconds);
      },
    );
    gauge('tallyman_lanes_blocked', 'Lanes that wait for a person.', ['queue'], (self, { queues }) => {
      for (const [queue, { blockedLanes }] of queues) self.set({ queue }, blockedLanes);
    });
    gauge(
      'tallyman_dead_letters',
      'Dead letters by queue and kind. Large numbers are estimates.',
      ['queue', 'kind'],
      (self, { deadLetters }) => {
        for (const { queue, kind, count } of deadLetters) self.set({ queue, kind }, count);
      },
    );
  }

  #exposePool(): void {
    const { pool } = this.#tallyman.database;
    const registers = [this.registry];
    new Gauge({
      name: 'tallyman_database_pool_connections',
      help: 'Open connections of the pool by state: used or idle.',
      labelNames: ['state'],
      registers,
      collect() {
        this.set({ state: 'used' }, pool.totalCount - pool.idleCount);
        this.set({ state: 'idle' }, pool.idleCount);
      },
    });
    new Gauge({
      name: 'tallyman_database_pool_limit',
      help: 'Connections that the pool may open.',
      registers,
      collect() {
        this.set(pool.options.max);
      },
    });
    new Gauge({
      name: 'tallyman_database_pool_waiting',
      help: 'Requests that wait for a connection of the pool.',
      registers,
      collect() {
        this.set(pool.waitingCount);
      },
    });
  }
}
