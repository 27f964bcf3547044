/**
 * From the broker into the database: messages of readers are parsed, kept raw in `iot`, and processed by `rfid`, all of a
 * batch in one commit; then they are acknowledged. What a killed process held, the broker sends again, and every read of it
 * that was committed is recognised.
 */
import { parseZebraReads, type RawTagRead, storeTagReads } from '../apps/iot/index.ts';
import {
  CachedDevices,
  ChangeNotices,
  processRead,
  type ReadResult,
  reconcileCameraRead,
  retryAsJobs,
  ShipmentLifecycle,
  type TagRead,
  TagReadProcessor,
} from '../apps/rfid/index.ts';
import { messageOf, TallymanError } from '../engine/errors.ts';
import type { Worker, WorkerOptions } from '../engine/jobs/worker.ts';
import { type Logger, silentLogger } from '../engine/logger.ts';
import type { Tallyman } from '../engine/tallyman.ts';
import {
  MqttConsumer,
  type MqttMessage,
  type MqttSettings,
  type MqttStatus,
  type SessionGap,
} from '../ingest/mqtt/index.ts';
import { replayOf } from './replay.ts';
import { keepUnreadable, type Received, reasonOf, unreadable } from './unreadable.ts';

export const readsTopic = 'zebra/fx/+/reads';

export interface IntakeOptions {
  readonly tallyman: Tallyman;
  readonly settings: MqttSettings;
  readonly logger?: Logger;
  /** Whose readers they are. Default `default`. */
  readonly tenantId?: string;
  /** Fills the gap after a lost session. Default: a replay of what `iot` holds and nobody has processed. */
  readonly onSessionGap?: (gap: SessionGap) => Promise<void>;
  /** How the worker runs that tries failed reads again, and buries what cannot be understood. */
  readonly worker?: Omit<WorkerOptions, 'kinds'>;
}

export interface IntakeCounts {
  /** Reads in messages that were committed, each as often as it came. */
  reads: number;
  duplicates: number;
  failed: number;
  movements: number;
  newBaskets: number;
  /** Messages of which something could not be understood. */
  unreadable: number;
}

export interface IntakeStatus {
  readonly mqtt: MqttStatus;
  readonly counts: Readonly<IntakeCounts>;
}

export interface RunningIntake {
  /** Tries failed reads and redriven messages again; here for whoever observes workers. */
  readonly worker: Worker;
  status(): IntakeStatus;
  /** Takes no more, commits and acknowledges what is in hand. The session stays. */
  stop(): Promise<void>;
}

/** Resolves when the first attempt to connect has ended; `status().mqtt` says how. It goes on trying either way. */
export async function startIntake(options: IntakeOptions): Promise<RunningIntake> {
  const { tallyman, settings, logger = silentLogger, tenantId = 'default', onSessionGap } = options;
  const { database } = tallyman;
  const devices = new CachedDevices({ database });
  const notices = new ChangeNotices(database, () => devices.drop());
  const processor = new TagReadProcessor({
    database,
    devices,
    onFailed: (tx, failures) => retryAsJobs(tallyman, retries)(tx, failures),
  });
  const retries = processRead(processor);
  const counts: IntakeCounts = {
    reads: 0,
    duplicates: 0,
    failed: 0,
    movements: 0,
    newBaskets: 0,
    unreadable: 0,
  };

  const takeIn = async (messages: readonly Received[]): Promise<void> => {
    const parsed = messages.map((message) => ({
      message,
      ...parseZebraReads(message.topic, message.payload, { tenantId: message.tenantId }),
    }));
    const reads = parsed.flatMap((each) => each.reads);
    const flawed = parsed
      .filter(({ rejected }) => rejected.length > 0)
      .map(({ message, rejected }) => ({ ...message, reason: reasonOf(rejected) }));
    const batch = await processor.examine(reads.map(tagReadOf));
    const results = await database.transaction(async (tx) => {
      await storeTagReads(tx, reads);
      await keepUnreadable(tallyman, puzzles, flawed, tx);
      return processor.processWithin(tx, batch);
    });
    count(counts, results);
    counts.unreadable += flawed.length;
  };

  /** A person has sent it round again: what is wrong with it has been mended, or it is buried once more. */
  const puzzles = unreadable(async (message) => {
    const { rejected } = parseZebraReads(message.topic, message.payload, message);
    if (rejected.length > 0) throw new TallymanError('UNREADABLE_MESSAGE', reasonOf(rejected));
    await takeIn([message]);
  });

  // Another instance that is at it already does the same.
  const fillGap = async (): Promise<void> => {
    await replayOf(tallyman, { logger }).catchUp();
  };

  const receive = (messages: readonly MqttMessage[]): Promise<void> =>
    takeIn(messages.map((message) => ({ ...message, tenantId })));
  const consumer = new MqttConsumer({
    settings,
    onBatch: receive,
    routes: [{ filter: readsTopic, onBatch: receive }],
    deadLetter: (message, error) =>
      keepUnreadable(tallyman, puzzles, [{ ...message, tenantId, reason: messageOf(error) }]),
    onSessionGap: onSessionGap ?? fillGap,
    logger,
  });
  const plates = reconcileCameraRead();
  const worker = tallyman.worker({ concurrency: 5, ...options.worker, kinds: [retries, puzzles, plates] });
  const ending = new AbortController();
  let shipments: Promise<unknown> | undefined;
  const stop = async (): Promise<void> => {
    ending.abort();
    await consumer.stop();
    await shipments;
    await worker.stop();
    await notices.stop();
  };
  try {
    await notices.start();
    await worker.start();
    await consumer.start();
    shipments = new ShipmentLifecycle({ tallyman, kind: plates }).follow({ signal: ending.signal });
  } catch (error) {
    await stop();
    throw error;
  }
  return { worker, status: () => ({ mqtt: consumer.status(), counts }), stop };
}

const tagReadOf = ({ tenantId, deviceId, epcHex, eventTimestamp }: RawTagRead): TagRead => ({
  epc: epcHex,
  deviceId,
  eventTimestamp,
  processorType: 'MQTT',
  tenantId,
});

function count(counts: IntakeCounts, results: readonly ReadResult[]): void {
  counts.reads += results.length;
  for (const { success, skipReason, isNewBasket } of results) {
    if (!success) counts.failed += 1;
    else if (skipReason === 'duplicate') counts.duplicates += 1;
    if (success && skipReason === null) counts.movements += 1;
    if (isNewBasket) counts.newBaskets += 1;
  }
}
