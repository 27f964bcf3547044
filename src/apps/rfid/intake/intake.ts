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
import { given } from '../../../given.ts';
import {
  type Clock,
  DeviceWatch,
  defaultTenant,
  originOf,
  type Subscription,
  subscriptionsOf,
} from '../../iot/index.ts';
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
  type MovementOptions,
  processRead,
  reconcileCameraRead,
  retryAsJobs,
  ShipmentLifecycle,
  TagReadProcessor,
  type TagReadProcessorOptions,
} from '../index.ts';
import type { PlantObserver } from './metrics.ts';
import { replayOf } from './replay.ts';
import { type IntakeCounts, ReadMessages } from './take-in.ts';
import type { Received } from './unreadable.ts';
import { type UpkeepOptions, upkeepOf } from './upkeep.ts';

/** Where Zebra readers publish their reads, unless they are told otherwise. */
export const readsTopic = 'zebra/fx/+/reads';

export interface IntakeOptions {
  readonly tallyman: Tallyman;
  /** Without it no messages come in; the background work still runs. */
  readonly settings?: MqttSettings | undefined;
  readonly logger?: Logger;
  /** What the topics tell about their messages. Default: the topics of `settings`, each with its defaults. */
  readonly subscriptions?: readonly Subscription[];
  /** Which tags count, and what becomes of reads whose time is ahead. */
  readonly judgement?: Pick<TagReadProcessorOptions, 'tags' | 'clock'> | undefined;
  /** Attempts of a read or a camera read that failed. Default 5. */
  readonly maxAttempts?: number | undefined;
  /** Fills the gap after a lost session. Default: replays the unprocessed reads of `iot`. */
  readonly onSessionGap?: (gap: SessionGap) => Promise<void>;
  /** Options of the worker that retries failed reads and keeps unreadable messages as dead letters. */
  readonly worker?: Omit<WorkerOptions, 'kinds'>;
  /** How often replay looks for unprocessed reads. Default: only after a lost session. */
  readonly replayIntervalMs?: number | undefined;
  /** Scheduled imports and deletions. Default: none. */
  readonly upkeep?: UpkeepOptions;
  readonly observer?: PlantObserver;
  readonly movements?: MovementOptions;
}

export interface IntakeStatus {
  /** Undefined where there is no broker. */
  readonly mqtt: MqttStatus | undefined;
  readonly counts: Readonly<IntakeCounts>;
  /** Of the devices that this process has heard of. */
  readonly clocks: readonly Clock[];
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
  const {
    tallyman,
    settings,
    logger = silentLogger,
    observer,
    replayIntervalMs,
    judgement,
    movements,
    maxAttempts,
  } = options;
  const { database } = tallyman;
  const subscriptions = options.subscriptions ?? subscriptionsOf(settings?.subscribeTopics ?? []);
  const devices = new CachedDevices({ database });
  const notices = new ChangeNotices(database, () => devices.drop());
  const processor = new TagReadProcessor({
    database,
    devices,
    ...judgement,
    onFailed: (tx, failures) => retryAsJobs(tallyman, retries)(tx, failures),
    ...given({ movements }),
  });
  const retries = processRead(processor, maxAttempts);
  const aheadLimit = judgement?.clock?.aheadLimit;
  const watch = new DeviceWatch({
    database,
    logger,
    ...(aheadLimit !== undefined && { aheadLimitMs: aheadLimit / 1000 }),
  });
  const messages = new ReadMessages({ tallyman, processor, subscriptions, watch, observer });
  const replay = replayOf(tallyman, {
    logger,
    observer,
    devices,
    judgement,
    maxAttempts,
    ...given({ movements }),
  });
  const consumer = settings && consumerOf(options, settings, subscriptions, messages, () => replay.catchUp());
  const plates = reconcileCameraRead(maxAttempts === undefined ? {} : { maxAttempts });
  const upkeep = upkeepOf(tallyman, replay, options.upkeep);
  const kinds = [retries, messages.unreadableMessages, plates, ...upkeep.kinds];
  const worker = tallyman.worker({ concurrency: 5, ...options.worker, kinds });
  const ending = new AbortController();
  const following: Promise<unknown>[] = [];
  const stop = async (): Promise<void> => {
    ending.abort();
    await consumer?.stop();
    await Promise.all(following);
    await watch
      .flush()
      .catch((error) =>
        logger.warn({ reason: messageOf(error) }, 'the last states of devices could not be written'),
      );
    await worker.stop();
    await notices.stop();
  };
  try {
    await notices.start();
    await upkeep.schedule();
    await worker.start();
    await consumer?.start();
    const { signal } = ending;
    following.push(watch.run(signal));
    following.push(new ShipmentLifecycle({ tallyman, kind: plates }).follow({ signal }));
    if (replayIntervalMs !== undefined)
      following.push(replay.follow({ signal, intervalMs: replayIntervalMs }));
  } catch (error) {
    await stop();
    throw error;
  }
  const status = (): IntakeStatus => ({
    mqtt: consumer?.status(),
    counts: messages.counts,
    clocks: watch.clocks,
  });
  return { worker, kinds, status, stop };
}

function consumerOf(
  { logger = silentLogger, onSessionGap, observer }: IntakeOptions,
  settings: MqttSettings,
  subscriptions: readonly Subscription[],
  messages: ReadMessages,
  catchUp: () => Promise<unknown>,
): MqttConsumer {
  const originFor = remembered((topic) => originOf(subscriptions, topic));
  const received = (message: MqttMessage): Received => ({
    tenantId: defaultTenant,
    ...message,
    ...originFor(message.topic),
  });
  const isOfDevices = (topic: string): boolean => originFor(topic)?.parser === 'zebra-events';
  const takeIn = (batch: readonly MqttMessage[]): Promise<void> => messages.takeIn(batch.map(received));
  const takeInEvents = (batch: readonly MqttMessage[]): Promise<void> =>
    messages.takeInEvents(batch.map(received));
  return new MqttConsumer({
    settings,
    // A session may still hold messages of a topic that was configured once: they are kept as dead letters.
    onBatch: takeIn,
    routes: subscriptions.map(({ topic, parser }) => ({
      filter: topic,
      onBatch: parser === 'zebra-events' ? takeInEvents : takeIn,
    })),
    onArrival: (message) => {
      if (!isOfDevices(message.topic)) messages.prepare(received(message));
    },
    readsIn: (message) => (isOfDevices(message.topic) ? 1 : messages.readsIn(message)),
    onCommit: (commit) => observer?.mqttCommit(commit),
    deadLetter: (message, error) => messages.keep(received(message), messageOf(error)),
    // Another instance that runs a replay now does the same work.
    onSessionGap:
      onSessionGap ??
      (async () => {
        await catchUp();
      }),
    logger,
  });
}

/** A reader publishes on the same topic again and again. */
function remembered<T>(find: (topic: string) => T): (topic: string) => T {
  const known = new Map<string, T>();
  return (topic) => {
    const found = known.get(topic);
    if (found !== undefined) return found;
    if (known.size >= 10_000) known.clear();
    const fresh = find(topic);
    known.set(topic, fresh);
    return fresh;
  };
}
