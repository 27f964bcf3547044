/**
 * Takes in messages of readers: parses them, stores the raw reads in `iot` and processes them in `rfid`, each read in the commit that
 * counts it. Unreadable messages are stored as dead letters first. A batch is acknowledged when all of it is committed; after a crash
 * the broker sends the whole batch again.
 */

import { TallymanError } from '../../../engine/errors.ts';
import type { Kind } from '../../../engine/jobs/kind.ts';
import type { Tallyman } from '../../../engine/tallyman.ts';
import { parseZebraReads, type RawTagRead, storeTagReads, type ZebraReads } from '../../iot/index.ts';
import type { ReadResult, TagRead, TagReadProcessor } from '../index.ts';
import type { PlantObserver } from './metrics.ts';
import { keepUnreadable, type Received, reasonOf, type UnreadableMessage, unreadable } from './unreadable.ts';

export interface IntakeCounts {
  /** Reads in messages that were committed, each as often as it came. */
  reads: number;
  duplicates: number;
  failed: number;
  movements: number;
  newBaskets: number;
  /** Messages with at least one part that could not be parsed. */
  unreadable: number;
}

export interface ReadMessagesOptions {
  readonly tallyman: Tallyman;
  readonly processor: TagReadProcessor;
  readonly observer?: PlantObserver | undefined;
}

/** In bytes. */
const longestPrepared = 64 * 1024;

export class ReadMessages {
  readonly counts: IntakeCounts = {
    reads: 0,
    duplicates: 0,
    failed: 0,
    movements: 0,
    newBaskets: 0,
    unreadable: 0,
  };
  /** The kind that keeps messages which could not be parsed. */
  readonly unreadableMessages: Kind<UnreadableMessage>;
  readonly #options: ReadMessagesOptions;
  /** By payload. */
  readonly #parsed = new WeakMap<Buffer, ZebraReads>();

  constructor(options: ReadMessagesOptions) {
    this.#options = options;
    // Runs after a redrive: either its cause is fixed, or it becomes a dead letter again.
    this.unreadableMessages = unreadable(async (message, tenant) => {
      const { rejected } = parseZebraReads(message.topic, message.payload, message);
      if (rejected.length > 0) throw new TallymanError('UNREADABLE_MESSAGE', reasonOf(rejected));
      await this.takeIn([message], options.processor.on(tenant));
    });
  }

  /** Parses a message on arrival, while the database handles earlier ones. Skips large messages: parsed, they take even more memory. */
  prepare({ topic, payload }: Pick<Received, 'topic' | 'payload'>, tenantId: string): void {
    if (payload.length <= longestPrepared)
      this.#parsed.set(payload, parseZebraReads(topic, payload, { tenantId }));
  }

  /** Resolves when all of them are durable. */
  async takeIn(messages: readonly Received[], processor = this.#options.processor): Promise<void> {
    const { tallyman, observer } = this.#options;
    const parsed = messages.map((message) => ({
      message,
      ...(this.#parsed.get(message.payload) ??
        parseZebraReads(message.topic, message.payload, { tenantId: message.tenantId })),
    }));
    const raw = parsed.flatMap((each) => each.reads);
    const flawed = parsed
      .filter(({ rejected }) => rejected.length > 0)
      .map(({ message, rejected }) => ({ ...message, reason: reasonOf(rejected) }));
    const reads = raw.map(tagReadOf);
    const batch = await processor.examine(reads);
    if (flawed.length > 0) await keepUnreadable(tallyman, this.unreadableMessages, flawed);
    const results = await processor.commitApart(batch, async (tx, places) => {
      await storeTagReads(
        tx,
        places.map((place) => raw[place] as RawTagRead),
      );
    });
    count(this.counts, results);
    this.counts.unreadable += flawed.length;
    observer?.committed('MQTT', reads, results);
  }

  /** Keeps the message as it came, whatever is wrong with it. */
  keep(message: Received, reason: string): Promise<void> {
    return keepUnreadable(this.#options.tallyman, this.unreadableMessages, [{ ...message, reason }]);
  }
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
