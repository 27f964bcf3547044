/**
 * A delivery of a peer into a forward buffer: facts, gap records, quarantine, receipt. The log decides how they are kept
 * together: in one transaction, or in an order that the next delivery completes after a crash.
 */
import type { Queryable } from '../../../engine/database/database.ts';
import { firstChain, type NewEntry } from '../../../engine/log/entry.ts';
import {
  type CheckedEntry,
  checkDelivery,
  type DeliveredEntry,
  type Delivery,
  type DroppedRange,
  type Frontier,
  passDropped,
} from '../domain/delivery.ts';
import { invalid } from '../domain/errors.ts';
import type { Receipt, SignedReceipt } from '../domain/receipt.ts';
import { type FactRecord, type GapRecord, restoredPrefix, standsForIn } from '../domain/record.ts';
import { type Crossing, type CrossingPlan, type FactLog, type Received, TakenIds } from './log.ts';
import { addReceipt } from './postgres/crossings.ts';
import { addQuarantined, resolveByStandIn } from './postgres/quarantine.ts';
import type { Delivered, QuarantinedEntry, StreamId } from './store.ts';

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

interface Refusal {
  readonly reason: string;
  readonly message: string;
  /** It is here already, with the same content: nothing is missing. */
  readonly isDelivered?: boolean;
}

export interface DeliverOptions {
  readonly log: FactLog;
  readonly sign: (receipt: Receipt) => SignedReceipt;
}

/**
 * Ids are nearly always new. Where one is taken nothing was written; each id is looked up, and it is tried again with what
 * was found out.
 */
export async function deliver(
  stream: StreamId,
  delivery: Delivery,
  { log, sign }: DeliverOptions,
): Promise<Delivered> {
  const bringsSomething = delivery.entries.length + (delivery.dropped?.length ?? 0) > 0;
  // The first delivery decides the epoch of the buffer: there is nothing yet that it would have to be equal to.
  if (bringsSomething && !uuid.test(delivery.epoch)) throw invalid('epoch', 'must be a UUID');
  const crossing = new DeliveryCrossing(stream, delivery, sign);
  for (const [offset, refusal] of await restoredRefusals(stream, delivery.entries, log))
    if (!crossing.refusals.has(offset)) crossing.refusals.set(offset, refusal);
  for (;;) {
    try {
      const { frontier } = await log.takeOver(stream, crossing);
      return {
        frontier: frontier ?? crossing.start,
        receipt: crossing.receipt,
        quarantined: [...crossing.quarantined.values()].sort((a, b) => a.offset - b.offset),
      };
    } catch (error) {
      if (!(error instanceof TakenIds)) throw error;
      const { refusals } = crossing;
      for (const [offset, refusal] of await refusalsOf(stream, error.entries, refusals, log))
        refusals.set(offset, refusal);
    }
  }
}

class DeliveryCrossing implements Crossing {
  /** Before the first delivery of a stream. */
  readonly start: Frontier;
  readonly refusals: Map<number, Refusal>;
  /** By offset: what was kept of this delivery. */
  readonly quarantined = new Map<number, QuarantinedEntry>();
  receipt: SignedReceipt | undefined;
  readonly #stream: StreamId;
  readonly #delivery: Delivery;
  readonly #sign: (receipt: Receipt) => SignedReceipt;
  readonly #receivedAt = Date.now();

  constructor(stream: StreamId, delivery: Delivery, sign: (receipt: Receipt) => SignedReceipt) {
    this.#stream = stream;
    this.#delivery = delivery;
    this.#sign = sign;
    this.start = { epoch: delivery.epoch, offset: 0, chain: firstChain(delivery.epoch) };
    this.refusals = new Map(
      delivery.entries.flatMap(({ offset, refusal }) => (refusal ? [[offset, refusal]] : [])),
    );
  }

  plan(before: Frontier = this.start): CrossingPlan | undefined {
    const { frontier: passed, gaps } = passDropped(before, this.#delivery, this.#stream);
    const delivered = checkDelivery(passed, this.#delivery, this.#stream);
    const { offset, chain } = delivered.at(-1) ?? passed;
    if (offset === before.offset) return undefined;
    const entries = [
      ...gaps.flatMap(droppedEntries),
      ...delivered.map((entry) => newEntry(entry, this.refusals.get(entry.offset))),
    ];
    return { entries, delivered, frontier: { epoch: this.#delivery.epoch, offset, chain } };
  }

  async keepRefused(tx: Queryable, { delivered }: CrossingPlan): Promise<void> {
    const refused = delivered.flatMap((entry) => {
      const refusal = this.refusals.get(entry.offset);
      return refusal && !refusal.isDelivered ? [this.#quarantinedEntry(entry, refusal)] : [];
    });
    await addQuarantined(tx, this.#stream.tenantId, refused);
    for (const entry of refused) this.quarantined.set(entry.offset, entry);
  }

  async keepReceived(tx: Queryable, { from, reached, facts }: Received): Promise<void> {
    const { tenantId, from: source, to } = this.#stream;
    const receipt = this.#sign({
      tenantId,
      from: source,
      to,
      epoch: reached.epoch,
      fromOffset: from,
      toOffset: reached.offset,
      chain: reached.chain,
      receivedAt: this.#receivedAt,
    });
    await addReceipt(tx, 'forward', receipt);
    for (const { offset, record } of facts) {
      const standsFor = this.refusals.has(offset) ? undefined : standsForIn(record);
      if (standsFor) await resolveByStandIn(tx, this.#stream, standsFor, offset);
    }
    this.receipt = receipt;
  }

  #quarantinedEntry({ offset, key, text }: CheckedEntry, { reason, message }: Refusal): QuarantinedEntry {
    const { from, to } = this.#stream;
    return {
      buffer: 'forward',
      from,
      to,
      epoch: this.#delivery.epoch,
      offset,
      messageId: key,
      reason,
      message,
      text,
      quarantinedAt: new Date(this.#receivedAt),
    };
  }
}

/**
 * A source that was restored from a backup does not know which of its facts had crossed: it appends them again under other ids. The
 * first id says here whether a fact is in already. The answer is the same for each attempt, since the first id never comes again.
 */
async function restoredRefusals(
  stream: StreamId,
  entries: readonly DeliveredEntry[],
  log: FactLog,
): Promise<Map<number, Refusal>> {
  const refusals = new Map<number, Refusal>();
  for (const { offset, key, digest, text } of entries) {
    if (!key.startsWith(restoredPrefix)) continue;
    const first = firstIdIn(text);
    const before = first === undefined ? undefined : await log.digestOf(stream, first);
    if (first !== undefined && before !== undefined)
      refusals.set(offset, deliveredBefore(first, digest.startsWith(before)));
  }
  return refusals;
}

function firstIdIn(text: string): string | undefined {
  try {
    return standsForIn(JSON.parse(text) as FactRecord)?.messageId;
  } catch {
    return undefined;
  }
}

// Of a trimmed fact the log may know half of the digest.
const deliveredBefore = (id: string, isSame: boolean): Refusal =>
  isSame
    ? {
        reason: 'already_delivered',
        message: `message id "${id}" was delivered before with the same content`,
        isDelivered: true,
      }
    : {
        reason: 'conflicting_duplicate',
        message: `message id "${id}" was delivered before with other content`,
      };

async function refusalsOf(
  stream: StreamId,
  entries: readonly CheckedEntry[],
  known: ReadonlyMap<number, Refusal>,
  log: FactLog,
): Promise<Map<number, Refusal>> {
  const refusals = new Map<number, Refusal>();
  const inDelivery = new Map<string, string>();
  for (const { offset, key, digest } of entries) {
    if (known.has(offset)) continue;
    const before = inDelivery.get(key) ?? (await log.digestOf(stream, key));
    if (before === undefined) inDelivery.set(key, digest);
    else refusals.set(offset, deliveredBefore(key, digest.startsWith(before)));
  }
  return refusals;
}

/** A message id has no control characters: the key of a gap record cannot be one. */
const gapKey = ({ offset, chain }: { readonly offset: number; readonly chain: string }): string =>
  `\u0001gap ${offset} ${chain}`;

/** The chain hash at the end of the range tells gaps of two epochs apart. */
const droppedEntries = ({ from, to, chain }: DroppedRange): NewEntry[] =>
  Array.from({ length: to - from + 1 }, (_, i) => {
    const gap = {
      reason: 'dropped_by_source',
      message: 'the source has dropped this fact before it crossed, because its stream was full',
      messageId: '',
    };
    const payload: GapRecord = { v: 1, gap };
    return { key: gapKey({ offset: from + i, chain }), payload };
  });

function newEntry(entry: CheckedEntry, refusal: Refusal | undefined): NewEntry {
  const { key, digest, record } = entry;
  if (!refusal) return { key, digest, payload: record };
  const { reason, message } = refusal;
  const payload: GapRecord = { v: 1, gap: { reason, message, messageId: key } };
  return { key: gapKey(entry), payload };
}
