/**
 * Runs a plant: takes messages from the broker, commits them, then acknowledges them. After a crash the broker sends unacknowledged
 * messages again, and reads that were committed are recognised as duplicates. It also runs the background work: failed reads are
 * retried, camera reads become shipments, replay processes reads that were missed, plates are fetched, old reads are deleted.
 */

import { messageOf } from '../../../engine/errors.ts';
import type { AnyKind } from '../../../engine/jobs/kind.ts';
import type { Worker } from '../../../engine/jobs/worker.ts';
import type { WorkerOptions } from '../../../engine/jobs/worker-options.ts';
import { type Logger, silentLogger } from '../../../engine/logger.ts';
import type { Tallyman } from '../../../engine/tallyman.ts';
import {
  MqttConsumer,
  type MqttMessage,
  type MqttSettings,
  type MqttStatus,
  type SessionGap,
} from '../../iot/mqtt/index.ts';
import {
  CachedDevices,
  ChangeNotices,
  processRead,
  reconcileCameraRead,
  retryAsJobs,
  ShipmentLifecycle,
  TagReadProcessor,
} from '../index.ts';
import type { PlantObserver } from './metrics.ts';
import { replayOf } from './replay.ts';
import { type IntakeCounts, ReadMessages } from './take-in.ts';
import { type UpkeepOptions, upkeepOf } from './upkeep.ts';

export const readsTopic = 'zebra/fx/+/reads';

export interface IntakeOptions {
  readonly tallyman: Tallyman;
  /** Without it no messages come in; the background work still runs. */
  readonly settings?: MqttSettings | undefined;
  readonly logger?: Logger;
  /** The tenant that owns the readers. Default `default`. */
  readonly tenantId?: string;
  /** Fills the gap after a lost session. Default: replays the unprocessed reads of `iot`. */
  readonly onSessionGap?: (gap: SessionGap) => Promise<void>;
  /** Options of the worker that retries failed reads and keeps unreadable messages as dead letters. */
  readonly worker?: Omit<WorkerOptions, 'kinds'>;
  /** How often replay looks for unprocessed reads. Default: only after a lost session. */
  readonly replayIntervalMs?: number | undefined;
  /** Scheduled imports and deletions. Default: none. */
  readonly upkeep?: UpkeepOptions;
  readonly observer?: PlantObserver;
}

export interface IntakeStatus {
  /** Undefined where there is no broker. */
  readonly mqtt: MqttStatus | undefined;
  readonly counts: Readonly<IntakeCounts>;
}

export interface RunningIntake {
  /** Runs all jobs of the plant; public so that metrics can observe it. */
  readonly worker: Worker;
  /** The kinds that this worker runs. */
  readonly kinds: readonly AnyKind[];
  status(): IntakeStatus;
  /** Stops taking messages, commits the current batch and acknowledges it. The broker keeps the session. */
  stop(): Promise<void>;
}

/** Resolves when the first attempt to connect has ended; `status().mqtt` says how. It keeps trying either way. */
export async function startIntake(options: IntakeOptions): Promise<RunningIntake> {
  const { tallyman, settings, logger = silentLogger, observer, replayIntervalMs } = options;
  const { database } = tallyman;
  const devices = new CachedDevices({ database });
  const notices = new ChangeNotices(database, () => devices.drop());
  const processor = new TagReadProcessor({
    database,
    devices,
    onFailed: (tx, failures) => retryAsJobs(tallyman, retries)(tx, failures),
  });
  const retries = processRead(processor);
  const messages = new ReadMessages({ tallyman, processor, observer });
  const replay = replayOf(tallyman, { logger, observer });
  const consumer = settings && consumerOf(options, settings, messages, () => replay.catchUp());
  const plates = reconcileCameraRead();
  const upkeep = upkeepOf(tallyman, replay, options.upkeep);
  const kinds = [retries, messages.unreadableMessages, plates, ...upkeep.kinds];
  const worker = tallyman.worker({ concurrency: 5, ...options.worker, kinds });
  const ending = new AbortController();
  const following: Promise<unknown>[] = [];
  const stop = async (): Promise<void> => {
    ending.abort();
    await consumer?.stop();
    await Promise.all(following);
    await worker.stop();
    await notices.stop();
  };
  try {
    await notices.start();
    await upkeep.schedule();
    await worker.start();
    await consumer?.start();
    const { signal } = ending;
    following.push(new ShipmentLifecycle({ tallyman, kind: plates }).follow({ signal }));
    if (replayIntervalMs !== undefined)
      following.push(replay.follow({ signal, intervalMs: replayIntervalMs }));
  } catch (error) {
    await stop();
    throw error;
  }
  return { worker, kinds, status: () => ({ mqtt: consumer?.status(), counts: messages.counts }), stop };
}

function consumerOf(
  { tenantId = 'default', logger = silentLogger, onSessionGap }: IntakeOptions,
  settings: MqttSettings,
  messages: ReadMessages,
  catchUp: () => Promise<unknown>,
): MqttConsumer {
  const receive = (received: readonly MqttMessage[]): Promise<void> =>
    messages.takeIn(received.map((message) => ({ ...message, tenantId })));
  return new MqttConsumer({
    settings,
    onBatch: receive,
    onArrival: (message) => messages.prepare(message, tenantId),
    routes: [{ filter: readsTopic, onBatch: receive }],
    deadLetter: (message, error) => messages.keep({ ...message, tenantId }, messageOf(error)),
    // Another instance that runs a replay now does the same work.
    onSessionGap:
      onSessionGap ??
      (async () => {
        await catchUp();
      }),
    logger,
  });
}
