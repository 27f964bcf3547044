/**
 * Takes in messages of readers: parses them, stores the raw reads in `iot` and processes them in `rfid`, each read in the commit that
 * counts it. Unreadable messages are stored as dead letters first. A batch is acknowledged when all of it is committed; after a crash
 * the broker sends the whole batch again.
 *
 * Reads of tags that the configuration ignores are counted and dropped. All others have their raw row, those of refused tags as well:
 * if the configuration lets such tags count one day, a replay finds what they did.
 */

import { TallymanError } from '../../../engine/errors.ts';
import type { Kind } from '../../../engine/jobs/kind.ts';
import type { Tallyman } from '../../../engine/tallyman.ts';
import {
  type DeviceWatch,
  originOf,
  parseZebraReads,
  type RawTagRead,
  type Subscription,
  storeTagReads,
  type ZebraReads,
} from '../../iot/index.ts';
import type { ReadResult, TagRead, TagReadProcessor } from '../index.ts';
import { parseDeviceMessage, storeDeviceMessages } from './device-messages.ts';
import type { PlantObserver } from './metrics.ts';
import { keepUnreadable, type Received, reasonOf, type UnreadableMessage, unreadable } from './unreadable.ts';

export interface IntakeCounts {
  /** Reads in messages that were committed, each as often as it came. */
  reads: number;
  duplicates: number;
  failed: number;
  /** Of tags that the configuration ignores; not among `reads`. */
  ignored: number;
  movements: number;
  newBaskets: number;
  /** Messages with at least one part that could not be parsed. */
  unreadable: number;
  /** Events of devices: heartbeats, inputs, antennas, errors. */
  deviceEvents: number;
}

export interface ReadMessagesOptions {
  readonly tallyman: Tallyman;
  readonly processor: TagReadProcessor;
  readonly subscriptions: readonly Subscription[];
  readonly watch: DeviceWatch;
  readonly observer?: PlantObserver | undefined;
}

interface Sifted extends ZebraReads {
  readonly ignored: number;
}

/** In bytes. */
const longestPrepared = 64 * 1024;
/** Of one read in a message that was not parsed on arrival, roughly. */
const bytesPerRead = 128;

export class ReadMessages {
  readonly counts: IntakeCounts = {
    reads: 0,
    duplicates: 0,
    failed: 0,
    ignored: 0,
    movements: 0,
    newBaskets: 0,
    unreadable: 0,
    deviceEvents: 0,
  };
  /** The kind that keeps messages which could not be parsed. */
  readonly unreadableMessages: Kind<UnreadableMessage>;
  readonly #options: ReadMessagesOptions;
  /** By payload. */
  readonly #parsed = new WeakMap<Buffer, Sifted>();

  constructor(options: ReadMessagesOptions) {
    this.#options = options;
    // Runs after a redrive: either its cause is fixed, or it becomes a dead letter again.
    this.unreadableMessages = unreadable(async (received, tenant) => {
      const origin = originOf(options.subscriptions, received.topic);
      const message = { ...received, ...origin, tenantId: received.tenantId };
      if (origin?.parser === 'zebra-events') {
        const parsed = parseDeviceMessage(message);
        refuseFlawed(parsed.rejected);
        await tenant.transaction((tx) => storeDeviceMessages(tx, [parsed]));
        return;
      }
      refuseFlawed(this.#sift(message).rejected);
      await this.takeIn([message], options.processor.on(tenant));
    });
  }

  /** Parses a message on arrival, while the database handles earlier ones. Skips large messages: parsed, they take even more memory. */
  prepare(message: Received): void {
    if (message.payload.length <= longestPrepared) this.#parsed.set(message.payload, this.#sift(message));
  }

  /** How many reads a message holds; an estimate for one that was too large to be parsed on arrival. */
  readsIn({ payload }: Pick<Received, 'payload'>): number {
    return this.#parsed.get(payload)?.reads.length ?? Math.ceil(payload.length / bytesPerRead);
  }

  /** Resolves when all of them are durable. */
  async takeIn(messages: readonly Received[], processor = this.#options.processor): Promise<void> {
    const { observer } = this.#options;
    const parsed = messages.map((message) => ({
      message,
      ...(this.#parsed.get(message.payload) ?? this.#sift(message)),
    }));
    const raw = parsed.flatMap((each) => each.reads);
    const reads = parsed.flatMap(({ message, reads: own }) =>
      own.map((read) => tagReadOf(read, message.receivedAt)),
    );
    const batch = await processor.examine(reads);
    const flawed = await this.#keepFlawed(parsed);
    const results = await processor.commitApart(batch, async (tx, places) => {
      await storeTagReads(
        tx,
        places.map((place) => raw[place] as RawTagRead),
      );
    });
    count(this.counts, results);
    this.counts.unreadable += flawed;
    observer?.committed('MQTT', reads, results);
    for (const { message, reads: own, ignored } of parsed) this.#note(message, own, ignored);
  }

  /** Events of devices. Resolves when all of them are durable. */
  async takeInEvents(messages: readonly Received[]): Promise<void> {
    const { tallyman, watch } = this.#options;
    const parsed = messages.map(parseDeviceMessage);
    const flawed = await this.#keepFlawed(parsed);
    await tallyman.database.transaction((tx) => storeDeviceMessages(tx, parsed));
    this.counts.unreadable += flawed;
    for (const { events } of parsed) {
      this.counts.deviceEvents += events.length;
      for (const { tenantId, deviceId, receivedAt, occurredAt, ownClock } of events)
        watch.heard(tenantId, deviceId, receivedAt, ownClock ? Date.parse(occurredAt) * 1000 : undefined);
    }
  }

  /** Keeps the message as it came, whatever is wrong with it. */
  keep(message: Received, reason: string): Promise<void> {
    return keepUnreadable(this.#options.tallyman, this.unreadableMessages, [{ ...message, reason }]);
  }

  async #keepFlawed(
    parsed: readonly (Pick<ZebraReads, 'rejected'> & { message: Received })[],
  ): Promise<number> {
    const flawed = parsed
      .filter(({ rejected }) => rejected.length > 0)
      .map(({ message, rejected }) => ({ ...message, reason: reasonOf(rejected) }));
    if (flawed.length > 0) await keepUnreadable(this.#options.tallyman, this.unreadableMessages, flawed);
    return flawed.length;
  }

  #sift({ topic, payload, tenantId, deviceId, flaw }: Received): Sifted {
    if (flaw !== undefined) return { reads: [], rejected: [{ index: null, reason: flaw }], ignored: 0 };
    const { processor } = this.#options;
    const options = { tenantId, ...(deviceId !== undefined && { deviceId }) };
    const { reads, rejected } = parseZebraReads(topic, payload, options);
    const kept = reads.filter(({ epcHex }) => !processor.ignores(epcHex));
    return { reads: kept, rejected, ignored: reads.length - kept.length };
  }

  #note({ tenantId, deviceId, receivedAt }: Received, reads: readonly RawTagRead[], ignored: number): void {
    const { watch, observer } = this.#options;
    const serial = reads[0]?.deviceId ?? deviceId;
    if (serial === undefined) return;
    // Of one spelling, they compare as text.
    const latest = reads.reduce(
      (max, { eventTimestamp }) => (eventTimestamp > max ? eventTimestamp : max),
      '',
    );
    if (latest === '') watch.heard(tenantId, serial, receivedAt);
    else watch.read(tenantId, serial, receivedAt, Date.parse(latest) * 1000);
    if (ignored === 0) return;
    watch.ignored(tenantId, serial, ignored);
    this.counts.ignored += ignored;
    observer?.ignored(ignored);
  }
}

function refuseFlawed(rejected: ZebraReads['rejected']): void {
  if (rejected.length > 0) throw new TallymanError('UNREADABLE_MESSAGE', reasonOf(rejected));
}

const tagReadOf = (
  { tenantId, deviceId, epcHex, eventTimestamp }: RawTagRead,
  receivedAt: Date,
): TagRead => ({
  epc: epcHex,
  deviceId,
  eventTimestamp,
  processorType: 'MQTT',
  tenantId,
  receivedAt: receivedAt.getTime() * 1000,
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
