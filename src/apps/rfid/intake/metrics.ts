import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import type { Clock } from '../../iot/index.ts';
import type { OnCommit } from '../../iot/mqtt/index.ts';
import type { ProcessorType, ReadResult, ReplayCounts, TagRead } from '../index.ts';
import type { RunningIntake } from './intake.ts';

/** Reports what was committed, after the commit. */
export interface PlantObserver {
  committed(path: ProcessorType, reads: readonly TagRead[], results: readonly ReadResult[]): void;
  /** Reads of tags that the configuration ignores. */
  ignored(reads: number): void;
  /** A batch of messages was committed, or could not be. */
  mqttCommit: OnCommit;
  /** A replay has committed a batch. */
  replayed(counts: ReplayCounts): void;
  /** A replay has ended. `busy`: another instance is running one. */
  replayEnded(outcome: ReplayOutcome): void;
}

const replayOutcomes = ['done', 'busy', 'failed'] as const;
export type ReplayOutcome = (typeof replayOutcomes)[number];

const paths = { MQTT: 'mqtt', Replay: 'replay' } as const;
const readOutcomes = ['processed', 'duplicate', 'stale', 'failed', 'ignored'] as const;
type ReadOutcome = (typeof readOutcomes)[number];
const commitSeconds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
const commitOutcomes = ['committed', 'rejected'] as const;
/** Of the devices of a plant with more, the first ones heard of. */
const mostClocks = 1000;
const lagSeconds = [0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200];

/** What becomes of tag reads, for Prometheus. */
export class PlantMetrics implements PlantObserver {
  readonly #reads: Counter<'path' | 'outcome'>;
  readonly #lag: Histogram;
  readonly #replays: Counter<'outcome'>;
  readonly #corrections: Counter;
  readonly #commits: Histogram<'outcome'>;
  #intake: RunningIntake | undefined;

  constructor(registry: Registry) {
    const registers = [registry];
    this.#reads = new Counter({
      name: 'tallyman_reads_total',
      help: 'Tag reads that were taken in, by path (mqtt, replay) and outcome: processed, duplicate, stale, failed, ignored.',
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
    this.#corrections = new Counter({
      name: 'tallyman_movement_corrections_total',
      help: 'Movements that a late read by MQTT changed or withdrew.',
      registers,
    });
    this.#commits = new Histogram({
      name: 'tallyman_mqtt_commit_seconds',
      help: 'How long commits of MQTT messages took, by outcome: committed, rejected.',
      labelNames: ['outcome'],
      buckets: commitSeconds,
      registers,
    });
    for (const outcome of commitOutcomes) this.#commits.zero({ outcome });
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
    const counts: Record<ReadOutcome, number> = {
      processed: 0,
      duplicate: 0,
      stale: 0,
      failed: 0,
      ignored: 0,
    };
    for (const [place, result] of results.entries()) {
      const outcome = outcomeOf(result);
      counts[outcome] += 1;
      if (result.corrections) this.#corrections.inc(result.corrections);
      if (outcome !== 'processed' && outcome !== 'stale') continue;
      // A reader's clock may be ahead of ours.
      const lag = now - Date.parse(reads[place]?.eventTimestamp ?? '');
      if (!Number.isNaN(lag)) this.#lag.observe(Math.max(0, lag) / 1000);
    }
    for (const outcome of readOutcomes) this.#reads.inc({ path: paths[path], outcome }, counts[outcome]);
  }

  ignored(reads: number): void {
    this.#reads.inc({ path: paths.MQTT, outcome: 'ignored' }, reads);
  }

  mqttCommit: OnCommit = ({ seconds, committed }) =>
    this.#commits.observe({ outcome: committed ? 'committed' : 'rejected' }, seconds);

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
    gauge(
      'tallyman_mqtt_bytes_in_flight',
      'Bytes of those messages.',
      () => status()?.mqtt?.counters.bytesInFlight ?? 0,
    );
    gauge(
      'tallyman_mqtt_oldest_in_flight_seconds',
      'How long the oldest of those messages has been waiting for its commit; 0 if there is none.',
      () => status()?.mqtt?.counters.oldestInFlightSeconds ?? 0,
    );
    gauge(
      'tallyman_mqtt_paused',
      '1 while reading from the broker is paused, because too much is in flight.',
      () => (status()?.mqtt?.counters.isPaused ? 1 : 0),
    );
    counter(
      'tallyman_mqtt_commit_failures_total',
      'Commits of MQTT messages that failed; the messages are kept and tried again.',
      () => status()?.mqtt?.counters.rejected ?? 0,
    );
    counter(
      'tallyman_device_events_total',
      'Heartbeats, inputs, antennas, errors and warnings that devices reported.',
      () => status()?.counts.deviceEvents ?? 0,
    );
    new Gauge({
      name: 'tallyman_device_clock_skew_seconds',
      help: 'The clock of a device minus ours, as of its last messages; positive: it is ahead.',
      labelNames: ['device'],
      registers,
      collect() {
        this.reset();
        for (const [device, seconds] of skewByDevice(status()?.clocks ?? [])) this.set({ device }, seconds);
      },
    });
    gauge('tallyman_mqtt_ready', '1 while intake is connected and subscribed.', () =>
      status()?.mqtt?.ready ? 1 : 0,
    );
  }
}

function outcomeOf({ success, skipReason }: ReadResult): ReadOutcome {
  if (!success) return 'failed';
  return skipReason === 'duplicate' || skipReason === 'stale' ? skipReason : 'processed';
}

/** Of two tenants' devices with one name, the one that is further ahead: tenants are no labels. */
function skewByDevice(clocks: readonly Clock[]): Map<string, number> {
  const found = new Map<string, number>();
  for (const { deviceId, skewMs } of clocks.slice(0, mostClocks))
    found.set(deviceId, Math.max(skewMs / 1000, found.get(deviceId) ?? Number.NEGATIVE_INFINITY));
  return found;
}
