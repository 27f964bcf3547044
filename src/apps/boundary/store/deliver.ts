/**
 * A delivery of a peer into a forward buffer: facts, gap records, quarantine, receipt. The log decides how they are kept
 * together: in one transaction, or in an order that the next delivery completes after a crash.
 */
import type { Queryable } from '../../../engine/database/database.ts';
import type { NewEntry } from '../../../engine/log/entry.ts';
import {
  type CheckedEntry,
  checkDelivery,
  type Delivery,
  type DroppedRange,
  type Frontier,
  passDropped,
  startFrontier,
} from '../domain/delivery.ts';
import { invalid } from '../domain/errors.ts';
import type { Receipt, SignedReceipt } from '../domain/receipt.ts';
import { type GapRecord, standsForIn } from '../domain/record.ts';
import { type Crossing, type CrossingPlan, type FactLog, type Received, TakenIds } from './log.ts';
import { addReceipt, receipts } from './postgres/crossings.ts';
import { addFormerIds } from './postgres/former-ids.ts';
import { addQuarantined, quarantined, removeTaken, resolveByStandIn } from './postgres/quarantine.ts';
import { quarantinedIn } from './quarantined-in.ts';
import { formerIdsOf, type Refusal, refusalsOf, restoredRefusals } from './refusals.ts';
import type { Delivered, QuarantinedEntry, StreamId } from './store.ts';

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

export interface DeliverOptions {
  readonly log: FactLog;
  /** Of the tables around the log. */
  readonly tables: Queryable;
  readonly sign: (receipt: Receipt) => SignedReceipt;
}

/**
 * Ids are nearly always new. Where one is taken nothing was written; each id is looked up, and it is tried again with what
 * was found out.
 */
export async function deliver(
  stream: StreamId,
  delivery: Delivery,
  { log, tables, sign }: DeliverOptions,
): Promise<Delivered> {
  const bringsSomething = delivery.entries.length + (delivery.dropped?.length ?? 0) > 0;
  // The first delivery decides the epoch of the buffer: there is nothing yet that it would have to be equal to.
  if (bringsSomething && !uuid.test(delivery.epoch)) throw invalid('epoch', 'must be a UUID');
  const crossing = new DeliveryCrossing(stream, delivery, sign);
  for (const [offset, refusal] of await restoredRefusals(stream, delivery.entries, { log, tables }))
    if (refusal.isDelivered || !crossing.refusals.has(offset)) crossing.refusals.set(offset, refusal);
  for (;;) {
    try {
      const { frontier } = await log.takeOver(stream, crossing);
      return {
        frontier: frontier ?? crossing.start,
        ...(await answerTo(stream, delivery, crossing, tables)),
      };
    } catch (error) {
      if (!(error instanceof TakenIds)) throw error;
      const { refusals } = crossing;
      for (const [offset, refusal] of await refusalsOf(stream, error.entries, refusals, log))
        refusals.set(offset, refusal);
    }
  }
}

/**
 * A delivery that comes again has the answer that was lost: the receipt that was signed for it, and what went into quarantine. A
 * receipt may also cover what a process had put into the log before it died.
 */
async function answerTo(
  stream: StreamId,
  { epoch, dropped, entries }: Delivery,
  crossing: DeliveryCrossing,
  tables: Queryable,
): Promise<Pick<Delivered, 'receipt' | 'quarantined'>> {
  const last = entries.at(-1)?.offset ?? dropped?.at(-1)?.to;
  const receipt = crossing.receipt ?? (last && (await receiptAt(tables, stream, { epoch, offset: last })));
  if (!receipt) return { receipt: undefined, quarantined: [] };
  const isAllNew = receipt === crossing.receipt && receipt.fromOffset > crossing.before;
  const refused = isAllNew
    ? [...crossing.quarantined.values()].sort((a, b) => a.offset - b.offset)
    : await quarantinedIn({ quarantined: (of, range) => quarantined(tables, of, range) }, stream, receipt);
  return { receipt, quarantined: refused };
}

async function receiptAt(
  tables: Queryable,
  stream: StreamId,
  { epoch, offset }: { readonly epoch: string; readonly offset: number },
): Promise<SignedReceipt | undefined> {
  const [found] = await receipts(tables, stream, { after: offset - 1, limit: 1 });
  return found?.epoch === epoch && found.fromOffset <= offset ? found : undefined;
}

class DeliveryCrossing implements Crossing {
  /** Before the first delivery of a stream. */
  readonly start: Frontier;
  readonly refusals: Map<number, Refusal>;
  /** By offset: what was kept of this delivery. */
  readonly quarantined = new Map<number, QuarantinedEntry>();
  receipt: SignedReceipt | undefined;
  /** How far the stream had come before. */
  before = 0;
  readonly #stream: StreamId;
  readonly #delivery: Delivery;
  readonly #sign: (receipt: Receipt) => SignedReceipt;
  readonly #receivedAt = Date.now();

  constructor(stream: StreamId, delivery: Delivery, sign: (receipt: Receipt) => SignedReceipt) {
    this.#stream = stream;
    this.#delivery = delivery;
    this.#sign = sign;
    this.start = startFrontier(delivery.epoch);
    this.refusals = new Map(
      delivery.entries.flatMap(({ offset, refusal }) => (refusal ? [[offset, refusal]] : [])),
    );
  }

  plan(before: Frontier = this.start): CrossingPlan | undefined {
    this.before = before.offset;
    const { frontier: passed, gaps } = passDropped(before, this.#delivery, this.#stream);
    const delivered = checkDelivery(passed, this.#delivery, this.#stream);
    for (const { offset: at, refusal } of delivered)
      if (refusal && !this.refusals.has(at)) this.refusals.set(at, refusal);
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
    const offsets = facts.map(({ offset }) => offset).filter((offset) => !this.#isQuarantined(offset));
    await removeTaken(tx, this.#stream, { epoch: reached.epoch, offsets });
    const taken = facts.filter(({ offset }) => !this.refusals.has(offset));
    await addFormerIds(
      tx,
      this.#stream,
      taken.flatMap(({ record }) => formerIdsOf(record)),
    );
    for (const { offset, record } of taken) {
      const standsFor = standsForIn(record);
      if (standsFor) await resolveByStandIn(tx, this.#stream, standsFor, offset);
    }
    this.receipt = receipt;
  }

  #isQuarantined(offset: number): boolean {
    const refusal = this.refusals.get(offset);
    return refusal !== undefined && !refusal.isDelivered;
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
