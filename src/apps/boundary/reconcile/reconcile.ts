/** `zones reconcile`: asks the other zone what it has of a stream, and compares it with what is here. */
import { firstChain } from '../../../engine/log/entry.ts';
import { type Anchor, type Comparison, compareEntries, type Proof } from '../domain/compare.ts';
import type { SignedReceipt } from '../domain/receipt.ts';
import { type Reconciliation, reconcile } from '../domain/reconcile.ts';
import type { Peer } from '../handoff/push.ts';
import { chainAt, keepQuarantined } from '../handoff/source.ts';
import type { FactStore, StreamId } from '../store/store.ts';
import { type Crossings, localSide, peerSide, type QuarantinedFact } from './sides.ts';

export interface ReconcileOptions {
  readonly store: FactStore;
  /** Of this node: what it sends to the peer's zone, or what it gets from there. */
  readonly stream: StreamId;
  readonly peer: Peer;
  /** Whether the zone that the stream goes to has signed it. */
  readonly isGenuine: (receipt: SignedReceipt) => boolean;
  readonly signal: AbortSignal;
  /**
   * What lies up to here is left out: receipts, quarantine and entries. Memory grows with the receipts behind it. Default 0:
   * everything.
   */
  readonly after?: number;
  /** Where the present epoch of the source began, if there was another one before, and it is known here. */
  readonly epochStart?: Anchor;
  /** Hears of offsets that were compared, and up to where it goes. */
  readonly onProgress?: (done: number, total: number) => void;
}

export interface PeerReconciliation extends Omit<Reconciliation, 'quarantined'>, Comparison {
  readonly quarantined: readonly QuarantinedFact[];
  /** Receipts that only the receiver had, and that were copied: the answers had been lost. */
  readonly copied: number;
  /** Facts in quarantine that only the receiver knew of, and that can be redriven now. */
  readonly copiedQuarantined: number;
  /** Everything that crossed is the same on both sides, and is covered by receipts. */
  readonly isInAgreement: boolean;
}

export async function reconcileWithPeer(options: ReconcileOptions): Promise<PeerReconciliation> {
  const { store, stream, peer, isGenuine, signal, onProgress, after = 0 } = options;
  const here = localSide(store, stream);
  const there = peerSide(peer, stream, signal);
  const [source, receiver] = stream.buffer === 'store' ? [here, there] : [there, here];
  // In this order: what crosses meanwhile must not look like a difference.
  const reached = await receiver.frontier();
  const head = await source.frontier();
  const sent = await source.crossings(after);
  const received = await receiver.crossings(after);
  const all = [...received.receipts, ...sent.receipts].filter(isGenuine);
  const epoch = head?.epoch ?? '';
  const anchors = [...(options.epochStart ? [options.epochStart] : []), ...anchorsOf(all, epoch)];
  const starts = startsOf(all);
  const isNew = all.length > 0 && all.every((receipt) => receipt.epoch !== epoch);
  // Of an epoch that was accepted nothing may have come yet.
  const firstOfEpoch = isNew
    ? (reached?.offset ?? 0) + 1
    : (starts.find((each) => each.epoch === epoch)?.offset ?? 1);
  const chains = new Map<number, string>();
  const ends = new Set([...received.receipts, ...sent.receipts].map(({ toOffset }) => toOffset));
  const compared = await compareEntries({
    source: noting(source.proofs(after), ends, chains, ({ offset }) =>
      onProgress?.(offset, head?.offset ?? 0),
    ),
    receiver: receiver.proofs(after),
    anchors,
    firstOfEpoch,
    starts: new Set(starts.map(({ offset }) => offset)),
  });
  const { quarantined: _, ...reconciled } = reconcile(
    { epoch, last: head?.offset ?? 0, receipts: sent.receipts, chains },
    { frontier: reached, receipts: received.receipts, quarantined: received.quarantined },
    isGenuine,
    after,
  );
  const copies = stream.buffer === 'store' ? await copyWhatIsMissing(options, sent, received) : nothingCopied;
  const isInAgreement = reconciled.problems.length === 0 && compared.tampered.length === 0;
  return { ...reconciled, ...compared, quarantined: received.quarantined, ...copies, isInAgreement };
}

/** Before the first fact the chain hash follows from the epoch, if the stream has had only this one. */
function anchorsOf(receipts: readonly SignedReceipt[], epoch: string): Anchor[] {
  const ofEpoch = receipts.filter((receipt) => receipt.epoch === epoch);
  const start =
    epoch !== '' && ofEpoch.length === receipts.length ? [{ offset: 0, chain: firstChain(epoch) }] : [];
  return [...start, ...ofEpoch.map(({ toOffset: offset, chain }) => ({ offset, chain }))].sort(
    (a, b) => a.offset - b.offset,
  );
}

/** The first offset that was received in each epoch but the first one, in order. */
function startsOf(receipts: readonly SignedReceipt[]): { readonly epoch: string; readonly offset: number }[] {
  const starts = new Map<string, number>();
  for (const { epoch, fromOffset } of receipts)
    starts.set(epoch, Math.min(fromOffset, starts.get(epoch) ?? fromOffset));
  return [...starts]
    .map(([epoch, offset]) => ({ epoch, offset }))
    .sort((a, b) => a.offset - b.offset)
    .slice(1);
}

async function* noting(
  proofs: AsyncIterable<Proof>,
  offsets: ReadonlySet<number>,
  chains: Map<number, string>,
  onEach: (proof: Proof) => void,
): AsyncGenerator<Proof> {
  for await (const proof of proofs) {
    onEach(proof);
    if (offsets.has(proof.offset)) chains.set(proof.offset, proof.chain);
    yield proof;
  }
}

const nothingCopied = { copied: 0, copiedQuarantined: 0 };

/** Quarantine comes with the receipts that cover it: they say of which epoch it is. */
async function copyWhatIsMissing(
  { store, stream, isGenuine }: ReconcileOptions,
  sent: Crossings,
  received: Crossings,
): Promise<Pick<PeerReconciliation, 'copied' | 'copiedQuarantined'>> {
  const idOf = ({ epoch, toOffset }: SignedReceipt): string => `${epoch} ${toOffset}`;
  const known = new Set(sent.receipts.map(idOf));
  const knownQuarantined = new Set(sent.quarantined.map(({ offset }) => offset));
  const missing = received.quarantined.filter(({ offset }) => !knownQuarantined.has(offset));
  let copied = 0;
  let copiedQuarantined = 0;
  for (const receipt of received.receipts) {
    const { epoch, fromOffset, toOffset } = receipt;
    const refused = missing.filter(({ offset }) => offset >= fromOffset && offset <= toOffset);
    const isKnown = known.has(idOf(receipt));
    if ((isKnown && refused.length === 0) || !isGenuine(receipt)) continue;
    const chain = await chainAt(store, stream, { epoch, offset: toOffset });
    if (chain !== undefined && chain !== receipt.chain) continue;
    copiedQuarantined += await keepQuarantined({ store, stream, epoch }, refused);
    if (isKnown) continue;
    await store.addReceipt('store', receipt);
    copied += 1;
  }
  return { copied, copiedQuarantined };
}
