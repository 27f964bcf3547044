/** The side of a hand-off that sends, by push or by pull: what it checks before, and keeps afterwards. */
import { newEpochChain, nextChain } from '../../../engine/log/entry.ts';
import { type DroppedRange, type Frontier, mostDropped, streamName } from '../domain/delivery.ts';
import { BoundaryError } from '../domain/errors.ts';
import type { SignedReceipt } from '../domain/receipt.ts';
import type { QuarantinedFact, Receipt } from '../proto/tallyman/boundary/v1/boundary_pb.ts';
import { receiptOf } from '../rpc/messages.ts';
import type {
  FactStore,
  QuarantinedEntry,
  Resolution,
  StoredEntry,
  StreamId,
  StreamState,
} from '../store/store.ts';

/** The consumer that stands for the other zone: what it has not received cannot be trimmed. */
export const peerConsumer = (zone: string): string => `${peerPrefix}${zone}`;
export const peerPrefix = 'peer:';
/** Of consumers that a node runs itself. */
export const nodePrefix = 'node:';

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
      `zone "${stream.to}" has received ${streamName(stream)} up to offset ${reached.offset}, ${what}: the database of zone ` +
        `"${stream.from}" was restored from a backup or replaced. Nothing is sent, and nothing is lost. In zone "${stream.from}" run: ` +
        `tallyman zones new-epoch ${stream.to} --after ${reached.offset}; in zone "${stream.to}" then run the command that it prints.`,
    );
  if (reached.epoch !== state.epoch)
    throw restored(`in epoch ${reached.epoch}, and here it is in ${state.epoch}`);
  if (reached.offset > state.last) throw restored(`and here it ends at ${state.last}`);
  const chain = await chainAt(store, stream, reached);
  // Behind the last fact of a former epoch the receiver has what the present one begins with.
  if (chain !== undefined && chain !== reached.chain && newEpochChain(chain, state.epoch) !== reached.chain)
    throw restored('and here other facts are at these offsets');
  const first = reached.offset === 0 ? await entryAt(store, stream, 1) : undefined;
  if (first && nextChain(reached.chain, first) !== first.chain)
    throw new BoundaryError(
      'FAILED_PRECONDITION',
      'receiver_restored',
      `zone "${stream.to}" has received nothing of ${streamName(stream)}, and its first facts belong to a former epoch here: the ` +
        `database of zone "${stream.to}" was replaced. Nothing is sent. In zone "${stream.from}" run: ` +
        `tallyman zones new-epoch ${stream.to} --after 0. It appends the facts again.`,
    );
}

/** `requireSamePast`. Also requires that the next fact has not been trimmed. */
export async function requireContinuation(
  store: FactStore,
  stream: StreamId,
  state: StreamState,
  reached: Frontier,
): Promise<void> {
  await requireSamePast(store, stream, state, reached);
  await requireNext(store, stream, state, reached);
}

/** The next fact is here, or was dropped, so that gap records take its place. */
async function requireNext(
  store: FactStore,
  stream: StreamId,
  state: StreamState,
  { offset }: Pick<Frontier, 'offset'>,
): Promise<void> {
  const isTrimmed = state.first > offset + 1;
  if (isTrimmed && (await droppedAfter(store, stream, state, offset)).length === 0)
    throw receiverRestored(stream, state, { offset });
}

/**
 * What this node has dropped from an offset on, as ranges without gaps between them, for one delivery. Empty: the fact after the
 * offset was not dropped.
 */
export async function droppedAfter(
  store: FactStore,
  stream: StreamId,
  { epoch, first }: StreamState,
  after: number,
): Promise<DroppedRange[]> {
  const ranges: DroppedRange[] = [];
  let reached = after;
  for (const each of await store.dropped(stream, { after, limit: mostDropped })) {
    if (each.epoch !== epoch || each.to <= reached) continue;
    // A range that was noted, and not dropped since its process died: its facts are still there.
    if (each.from > reached + 1 || each.to >= first || each.to - after > mostDropped) break;
    ranges.push({ from: reached + 1, to: each.to, chain: each.chain });
    reached = each.to;
  }
  return ranges;
}

/** What was dropped between what a peer has and what it is sent next. */
export async function droppedBefore(
  store: FactStore,
  stream: StreamId,
  next: StoredEntry | undefined,
  has: number,
): Promise<DroppedRange[]> {
  const state = next && next.offset > has + 1 ? await store.state(stream) : undefined;
  return state ? droppedAfter(store, stream, state, has) : [];
}

/** The receiver was restored, and has less than it has confirmed: what is still here is sent again. */
export async function goBack(
  store: FactStore,
  stream: StreamId,
  state: StreamState,
  { offset }: Frontier,
): Promise<void> {
  await requireNext(store, stream, state, { offset });
  await store.seek(stream, peerConsumer(stream.to), { after: offset });
}

const receiverRestored = (
  stream: StreamId,
  { first }: Pick<StreamState, 'first'>,
  { offset }: Pick<Frontier, 'offset'>,
): BoundaryError =>
  new BoundaryError(
    'FAILED_PRECONDITION',
    'receiver_restored',
    `zone "${stream.to}" has received ${streamName(stream)} up to offset ${offset} only, although more was confirmed, and facts before ` +
      `${first} were trimmed here: its database was restored from a backup that is too old. ` +
      `Restore a newer one there; if there is none, run in zone "${stream.from}": tallyman zones new-epoch ${stream.to} --after ${offset}. ` +
      'Facts that are gone here become gap records there.',
  );

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
    sent = [],
  }: {
    readonly store: FactStore;
    readonly stream: StreamId;
    readonly isGenuine: (receipt: SignedReceipt) => boolean;
    /** What the answer is for, if it is known: the log may have dropped it meanwhile. */
    readonly sent?: readonly StoredEntry[];
  },
  { receipt, quarantined }: Answer,
): Promise<void> {
  if (!receipt) return;
  const signed = receiptOf(receipt, stream);
  const { epoch, toOffset: offset } = signed;
  const known = sent.find((each) => each.offset === offset);
  const chain = known ? known.chain : await chainAt(store, stream, { epoch, offset });
  const isForOthers =
    chain === undefined ? !(await wasTrimmed(store, stream, offset)) : signed.chain !== chain;
  if (!isGenuine(signed) || isForOthers)
    throw new BoundaryError(
      'FAILED_PRECONDITION',
      'bad_receipt',
      `the receipt of zone "${stream.to}" for ${streamName(stream)} up to offset ${signed.toOffset} is not signed by its key "${signed.keyId}", or is for other facts; nothing was confirmed`,
    );
  const refused = quarantined.flatMap((each) => refusedIn(each) ?? []);
  await keepQuarantined({ store, stream, epoch, sent }, refused);
  await store.addReceipt('store', signed);
}

export interface Refused {
  readonly offset: number;
  readonly reason: string;
  readonly message: string;
  /** If it is known: another fact at this offset is not the one that was refused. */
  readonly messageId?: string;
  /** If a later fact stands for it already. */
  readonly resolved?: Omit<Resolution, 'at'>;
}

/** Undefined: it does not say why. */
export function refusedIn({
  offset,
  gap,
  resolution,
  resolvedBy,
}: QuarantinedFact): (Refused & { readonly messageId: string }) | undefined {
  const how = resolution === 'redriven' || resolution === 'dropped' ? resolution : undefined;
  return (
    gap && {
      offset: Number(offset),
      reason: gap.reason,
      message: gap.message,
      messageId: gap.messageId,
      ...(how && { resolved: { how, by: Number(resolvedBy) } }),
    }
  );
}

/**
 * Puts facts that the receiver could not take into the quarantine here, with their records, while the log has them. Returns how
 * many it has.
 */
export async function keepQuarantined(
  {
    store,
    stream,
    epoch,
    sent = [],
  }: {
    readonly store: FactStore;
    readonly stream: StreamId;
    readonly epoch: string;
    readonly sent?: readonly StoredEntry[];
  },
  refused: readonly Refused[],
): Promise<number> {
  const kept: QuarantinedEntry[] = [];
  for (const { offset, reason, message, messageId = '' } of refused) {
    const entry = sent.find((each) => each.offset === offset) ?? (await entryAt(store, stream, offset));
    if (!entry || (messageId !== '' && messageId !== entry.key)) continue;
    kept.push({
      buffer: 'store',
      from: stream.from,
      to: stream.to,
      epoch,
      offset: entry.offset,
      messageId: entry.key,
      reason,
      message,
      text: entry.text,
      quarantinedAt: new Date(),
    });
  }
  await store.quarantine(stream.tenantId, kept);
  for (const { offset, resolved } of refused)
    if (resolved) await store.resolveQuarantined(stream, { epoch, offset }, resolved);
  return kept.length;
}

/** The chain hash of an entry that is kept, or at the end of what was dropped. */
export async function chainAt(
  store: FactStore,
  stream: StreamId,
  { epoch, offset }: { readonly epoch: string; readonly offset: number },
): Promise<string | undefined> {
  const entry = await entryAt(store, stream, offset);
  if (entry || !Number.isSafeInteger(offset) || offset < 1) return entry?.chain;
  const [range] = await store.dropped(stream, { after: offset - 1, limit: 1 });
  return range?.to === offset && range.epoch === epoch ? range.chain : undefined;
}

async function wasTrimmed(store: FactStore, stream: StreamId, offset: number): Promise<boolean> {
  return offset < ((await store.state(stream))?.first ?? 1);
}

async function entryAt(store: FactStore, stream: StreamId, offset: number): Promise<StoredEntry | undefined> {
  if (!Number.isSafeInteger(offset) || offset < 1) return undefined;
  const [entry] = await store.read(stream, { after: offset - 1, limit: 1, maxBytes: 1 });
  return entry?.offset === offset ? entry : undefined;
}
