/** The side of a hand-off that sends, by push or by pull: what it checks before, and keeps afterwards. */
import { type Frontier, streamName } from '../domain/delivery.ts';
import { BoundaryError } from '../domain/errors.ts';
import type { SignedReceipt } from '../domain/receipt.ts';
import type { QuarantinedFact, Receipt } from '../proto/tallyman/boundary/v1/boundary_pb.ts';
import type { FactStore, QuarantinedEntry, StoredEntry, StreamId, StreamState } from '../store/store.ts';

/** The consumer that stands for the other zone: what it has not received cannot be trimmed. */
export const peerConsumer = (zone: string): string => `${peerPrefix}${zone}`;
export const peerPrefix = 'peer:';

/** The receiver refuses what does not follow from what it has; this says first what has happened, and what to do. */
export async function requireSamePast(
  store: FactStore,
  stream: StreamId,
  state: StreamState,
  reached: Frontier,
): Promise<void> {
  const restored = (what: string): BoundaryError =>
    new BoundaryError(
      'FAILED_PRECONDITION',
      'source_restored',
      `zone "${stream.to}" has received ${streamName(stream)} up to offset ${reached.offset}, ${what}: this node's database was ` +
        `restored from a backup or replaced. Nothing is sent. Start a new epoch after offset ${reached.offset} here, and accept it there.`,
    );
  if (reached.epoch !== state.epoch)
    throw restored(`in epoch ${reached.epoch}, and here it is in ${state.epoch}`);
  if (reached.offset > state.last) throw restored(`and here it ends at ${state.last}`);
  const entry = await entryAt(store, stream, reached.offset);
  if (entry && entry.chain !== reached.chain) throw restored('and here other facts are at these offsets');
}

/** The receiver was restored, and has less than it has confirmed: what is still here is sent again. */
export async function goBack(
  store: FactStore,
  stream: StreamId,
  { first }: StreamState,
  { offset }: Frontier,
): Promise<void> {
  if (first > offset + 1)
    throw new BoundaryError(
      'FAILED_PRECONDITION',
      'receiver_restored',
      `zone "${stream.to}" has received ${streamName(stream)} up to offset ${offset} only, although more was confirmed, and facts before ` +
        `${first} were trimmed here: its database was restored from a backup that is too old. Restore a newer one there.`,
    );
  await store.seek(stream, peerConsumer(stream.to), { after: offset });
}

export interface Answer {
  readonly receipt?: Receipt | undefined;
  readonly quarantined: readonly QuarantinedFact[];
}

/** Keeps what the receiver has signed, and what it could not take. Kept twice is kept once. */
export async function keepAnswer(
  {
    store,
    stream,
    isGenuine,
  }: {
    readonly store: FactStore;
    readonly stream: StreamId;
    readonly isGenuine: (receipt: SignedReceipt) => boolean;
  },
  { receipt, quarantined }: Answer,
): Promise<void> {
  if (!receipt) return;
  const signed: SignedReceipt = {
    tenantId: stream.tenantId,
    from: stream.from,
    to: stream.to,
    epoch: receipt.epoch,
    fromOffset: Number(receipt.fromOffset),
    toOffset: Number(receipt.toOffset),
    chain: receipt.chain,
    receivedAt: Number(receipt.receivedAtUnixMs),
    keyId: receipt.keyId,
    signature: receipt.signature,
  };
  const last = await entryAt(store, stream, signed.toOffset);
  if (!isGenuine(signed) || signed.chain !== last?.chain)
    throw new BoundaryError(
      'FAILED_PRECONDITION',
      'bad_receipt',
      `the receipt of zone "${stream.to}" for ${streamName(stream)} up to offset ${signed.toOffset} is not signed by its key "${signed.keyId}", or is for other facts; nothing was confirmed`,
    );
  const kept: QuarantinedEntry[] = [];
  for (const { offset, gap } of quarantined) {
    const entry = await entryAt(store, stream, Number(offset));
    if (!entry || !gap) continue;
    kept.push({
      buffer: 'store',
      from: stream.from,
      to: stream.to,
      epoch: signed.epoch,
      offset: entry.offset,
      messageId: entry.key,
      reason: gap.reason,
      message: gap.message,
      text: entry.text,
      quarantinedAt: new Date(),
    });
  }
  await store.quarantine(stream.tenantId, kept);
  await store.addReceipt('store', signed);
}

async function entryAt(store: FactStore, stream: StreamId, offset: number): Promise<StoredEntry | undefined> {
  if (!Number.isSafeInteger(offset) || offset < 1) return undefined;
  const [entry] = await store.read(stream, { after: offset - 1, limit: 1, maxBytes: 1 });
  return entry?.offset === offset ? entry : undefined;
}
