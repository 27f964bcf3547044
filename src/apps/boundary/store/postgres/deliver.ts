/** A delivery of a peer into a forward buffer, in one transaction: facts, gap records, quarantine, receipt, frontier. */
import type { Database, Queryable } from '../../../../engine/database/database.ts';
import { withinTenant } from '../../../../engine/database/tenant.ts';
import { firstChain, type NewEntry } from '../../../../engine/log/entry.ts';
import type { Log } from '../../../../engine/log/log.ts';
import type { StreamName } from '../../../../engine/log/stream.ts';
import {
  type CheckedEntry,
  checkDelivery,
  type Delivery,
  type DroppedRange,
  type Frontier,
  passDropped,
} from '../../domain/delivery.ts';
import type { Receipt, SignedReceipt } from '../../domain/receipt.ts';
import { type GapRecord, standsForIn } from '../../domain/record.ts';
import type { Delivered, QuarantinedEntry, StreamId } from '../store.ts';
import { addReceipt, lockFrontier, moveFrontier } from './crossings.ts';
import { addQuarantined, resolveByStandIn } from './quarantine.ts';

interface Refusal {
  readonly reason: string;
  readonly message: string;
  /** It is here already, with the same content: nothing is missing. */
  readonly isDelivered?: boolean;
}

export interface DeliverOptions {
  readonly database: Database;
  readonly log: Log;
  /** The forward buffer, in the log. */
  readonly ref: StreamName;
  readonly sign: (receipt: Receipt) => SignedReceipt;
}

/** Some message id of these entries is taken. */
class TakenIds extends Error {
  readonly entries: readonly CheckedEntry[];

  constructor(entries: readonly CheckedEntry[]) {
    super('a message id is taken');
    this.entries = entries;
  }
}

/**
 * Ids are nearly always new. Where one is taken the transaction is undone, each id is looked up, and it is tried again with
 * what was found out. Not inside the transaction: the lookup takes a connection of its own.
 */
export async function deliver(
  stream: StreamId,
  delivery: Delivery,
  options: DeliverOptions,
): Promise<Delivered> {
  const refusals = new Map<number, Refusal>(
    delivery.entries.flatMap(({ offset, refusal }) => (refusal ? [[offset, refusal]] : [])),
  );
  for (;;) {
    try {
      return await attempt(stream, delivery, refusals, options);
    } catch (error) {
      if (!(error instanceof TakenIds)) throw error;
      for (const [offset, refusal] of await refusalsOf(error.entries, refusals, options))
        refusals.set(offset, refusal);
    }
  }
}

function attempt(
  stream: StreamId,
  delivery: Delivery,
  refusals: ReadonlyMap<number, Refusal>,
  options: DeliverOptions,
): Promise<Delivered> {
  const { database, sign } = options;
  return database.transaction(async (tx) => {
    const start: Frontier = { epoch: delivery.epoch, offset: 0, chain: firstChain(delivery.epoch) };
    const before = await withinTenant(tx, stream.tenantId, () => lockFrontier(tx, stream, start));
    const { frontier: passed, gaps } = passDropped(before, delivery, stream);
    const entries = checkDelivery(passed, delivery, stream);
    const last = entries.at(-1) ?? passed;
    if (last.offset === before.offset) return { frontier: before, receipt: undefined, quarantined: [] };
    await append(tx, { gaps, entries, first: before.offset + 1 }, refusals, options);
    const receivedAt = Date.now();
    const quarantined = entries.flatMap((entry) => {
      const refusal = refusals.get(entry.offset);
      return refusal && !refusal.isDelivered
        ? [quarantinedEntry(stream, delivery.epoch, entry, refusal, receivedAt)]
        : [];
    });
    const frontier: Frontier = { epoch: delivery.epoch, offset: last.offset, chain: last.chain };
    const receipt = sign({
      tenantId: stream.tenantId,
      from: stream.from,
      to: stream.to,
      epoch: delivery.epoch,
      fromOffset: before.offset + 1,
      toOffset: last.offset,
      chain: last.chain,
      receivedAt,
    });
    await withinTenant(tx, stream.tenantId, async () => {
      await moveFrontier(tx, stream, frontier);
      await addQuarantined(tx, stream.tenantId, quarantined);
      await addReceipt(tx, 'forward', receipt);
      for (const { offset, record } of entries) {
        const standsFor = refusals.has(offset) ? undefined : standsForIn(record);
        if (standsFor) await resolveByStandIn(tx, stream, standsFor, offset);
      }
    });
    return { frontier, receipt, quarantined };
  });
}

/** A fact or a gap record for each offset from the first one on. */
async function append(
  tx: Queryable,
  {
    gaps,
    entries,
    first,
  }: {
    readonly gaps: readonly DroppedRange[];
    readonly entries: readonly CheckedEntry[];
    readonly first: number;
  },
  refusals: ReadonlyMap<number, Refusal>,
  { log, ref }: DeliverOptions,
): Promise<void> {
  const made = [
    ...gaps.flatMap(droppedEntries),
    ...entries.map((entry) => newEntry(entry, refusals.get(entry.offset))),
  ];
  try {
    const appended = await log.appendWithin(tx, ref, made, { offset: first });
    if (appended.every(({ existing }) => !existing)) return;
  } catch (error) {
    if ((error as { code?: string }).code !== 'CONFLICTING_DUPLICATE') throw error;
  }
  throw new TakenIds(entries);
}

async function refusalsOf(
  entries: readonly CheckedEntry[],
  known: ReadonlyMap<number, Refusal>,
  { log, ref }: DeliverOptions,
): Promise<Map<number, Refusal>> {
  const refusals = new Map<number, Refusal>();
  const inDelivery = new Map<string, string>();
  for (const { offset, key, digest } of entries) {
    if (known.has(offset)) continue;
    const before = inDelivery.get(key) ?? (await log.find(ref, key))?.digest;
    if (before === undefined) inDelivery.set(key, digest);
    // Of a trimmed fact the log knows half of the digest.
    else if (digest.startsWith(before))
      refusals.set(offset, {
        reason: 'already_delivered',
        message: `message id "${key}" was delivered before with the same content`,
        isDelivered: true,
      });
    else
      refusals.set(offset, {
        reason: 'conflicting_duplicate',
        message: `message id "${key}" was delivered before with other content`,
      });
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

const quarantinedEntry = (
  { from, to }: StreamId,
  epoch: string,
  { offset, key, text }: CheckedEntry,
  { reason, message }: Refusal,
  at: number,
): QuarantinedEntry => ({
  buffer: 'forward',
  from,
  to,
  epoch,
  offset,
  messageId: key,
  reason,
  message,
  text,
  quarantinedAt: new Date(at),
});
