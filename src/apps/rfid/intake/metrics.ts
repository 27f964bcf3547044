import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import type { ProcessorType, ReadResult, ReplayCounts, TagRead } from '../index.ts';
import type { RunningIntake } from './intake.ts';

/** Reports what was committed, after the commit. */
export interface PlantObserver {
  committed(path: ProcessorType, reads: readonly TagRead[], results: readonly ReadResult[]): void;
  /** A replay has committed a batch. */
  replayed(counts: ReplayCounts): void;
  /** A replay has ended. `busy`: another instance is running one. */
  replayEnded(outcome: ReplayOutcome): void;
}

export const replayOutcomes = ['done', 'busy', 'failed'] as const;
export type ReplayOutcome = (typeof replayOutcomes)[number];

const paths = { MQTT: 'mqtt', Replay: 'replay' } as const;
const readOutcomes = ['processed', 'duplicate', 'failed'] as const;
const lagSeconds = [0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200];

/** What becomes of tag reads, for Prometheus. */
export class PlantMetrics implements PlantObserver {
  readonly #reads: Counter<'path' | 'outcome'>;
  readonly #lag: Histogram;
  readonly #replays: Counter<'outcome'>;
  #intake: RunningIntake | undefined;

  constructor(registry: Registry) {
    const registers = [registry];
    this.#reads = new Counter({
      name: 'tallyman_reads_total',
      help: 'Tag reads that were committed, by path (mqtt, replay) and outcome: processed, duplicate, failed.',
      labelNames: ['path', 'outcome'],
      registers,
    });
    this.#lag = new Histogram({
      name: 'tallyman_read_lag_seconds',
      help: 'Time from the reader’s clock at a read to its commit, of reads that came by MQTT for the first time.',
      buckets: lagSeconds,
      registers,
    });
    this.#replays = new Counter({
      name: 'tallyman_replays_total',
      help: 'Replays that ended: done, busy (another instance is running one) or failed.',
      labelNames: ['outcome'],
      registers,
    });
    // Prometheus sees no increase when a series first appears with 1, so each starts at 0.
    for (const outcome of readOutcomes)
      for (const path of Object.values(paths)) this.#reads.inc({ path, outcome }, 0);
    for (const outcome of replayOutcomes) this.#replays.inc({ outcome }, 0);
    this.#exposeIntake(registers);
  }

  /** From now on, exports the counters of this intake's connection and messages. */
  observe(intake: RunningIntake): void {
    this.#intake = intake;
  }

  committed(path: ProcessorType, reads: readonly TagRead[], results: readonly ReadResult[]): void {
    const now = Date.now();
    const counts = { processed: 0, duplicate: 0, failed: 0 };
    for (const [place, { success, skipReason }] of results.entries()) {
      const outcome = !success ? 'failed' : skipReason === 'duplicate' ? 'duplicate' : 'processed';
      counts[outcome] += 1;
      if (outcome !== 'processed') continue;
      // A reader's clock may be ahead of ours.
      const lag = now - Date.parse(reads[place]?.eventTimestamp ?? '');
      if (!Number.isNaN(lag)) this.#lag.observe(Math.max(0, lag) / 1000);
    }
    for (const outcome of readOutcomes) this.#reads.inc({ path: paths[path], outcome }, counts[outcome]);
  }

  replayed({ processed, duplicates, failed }: ReplayCounts): void {
    const path = paths.Replay;
    this.#reads.inc({ path, outcome: 'processed' }, processed);
    this.#reads.inc({ path, outcome: 'duplicate' }, duplicates);
    this.#reads.inc({ path, outcome: 'failed' }, failed);
  }

  replayEnded(outcome: ReplayOutcome): void {
    this.#replays.inc({ outcome });
  }

  /** Reads the intake's own counters at each scrape. */
  #exposeIntake(registers: Registry[]): void {
    const status = (): ReturnType<RunningIntake['status']> | undefined => this.#intake?.status();
    const counter = (name: string, help: string, read: () => number): void => {
      new Counter({
        name,
        help,
        registers,
        collect() {
          this.reset();
          this.inc(read());
        },
      });
    };
    const gauge = (name: string, help: string, read: () => number): void => {
      new Gauge({
        name,
        help,
        registers,
        collect() {
          this.set(read());
        },
      });
    };
    counter(
      'tallyman_movements_total',
      'Movements of baskets that reads by MQTT made.',
      () => status()?.counts.movements ?? 0,
    );
    counter(
      'tallyman_unreadable_messages_total',
      'Messages kept as dead letters because something in them could not be understood.',
      () => status()?.counts.unreadable ?? 0,
    );
    counter(
      'tallyman_mqtt_messages_total',
      'MQTT messages that were committed and acknowledged.',
      () => status()?.mqtt?.counters.acknowledged ?? 0,
    );
    counter(
      'tallyman_mqtt_redelivered_total',
      'MQTT messages that the broker had sent before.',
      () => status()?.mqtt?.counters.redelivered ?? 0,
    );
    counter(
      'tallyman_mqtt_reconnects_total',
      'Times that the connection to the broker was made again.',
      () => status()?.mqtt?.counters.reconnects ?? 0,
    );
    gauge(
      'tallyman_mqtt_in_flight',
      'MQTT messages that were received and are not committed yet.',
      () => status()?.mqtt?.counters.inFlight ?? 0,
    );
    gauge('tallyman_mqtt_ready', '1 while intake is connected and subscribed.', () =>
      status()?.mqtt?.ready ? 1 : 0,
    );
  }
}
