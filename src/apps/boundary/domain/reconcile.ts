/** Compares what two zones know about one stream: what crossed, when, and what did not. */
import type { Frontier } from './delivery.ts';
import type { SignedReceipt } from './receipt.ts';

export interface SourceSide {
  readonly epoch: string;
  /** The last offset that was appended. */
  readonly last: number;
  readonly receipts: readonly SignedReceipt[];
  /** Chain hashes of its own log, as computed anew, at the ends of both sides' receipts, as far as they were not trimmed. */
  readonly chains: ReadonlyMap<number, string>;
}

export interface ReceiverSide {
  /** Undefined: nothing was received. */
  readonly frontier: Frontier | undefined;
  readonly receipts: readonly SignedReceipt[];
  readonly quarantined: readonly {
    readonly offset: number;
    readonly messageId: string;
    readonly reason: string;
  }[];
}

export interface Crossed {
  readonly from: number;
  readonly to: number;
  /** The receiver's clock. */
  readonly at: Date;
  /** Only the receiver has the receipt: the answer was lost, and the sender should take a copy. */
  readonly isCopyMissing: boolean;
}

export interface Reconciliation {
  readonly crossed: readonly Crossed[];
  readonly notCrossed: { readonly from: number; readonly to: number } | undefined;
  readonly quarantined: ReceiverSide['quarantined'];
  /** In words. Empty: both sides agree. */
  readonly problems: readonly string[];
}

export function reconcile(
  source: SourceSide,
  receiver: ReceiverSide,
  isGenuine: (receipt: SignedReceipt) => boolean,
  /** Up to this offset nothing is judged. */
  after = 0,
): Reconciliation {
  const { frontier } = receiver;
  const reached = frontier?.offset ?? 0;
  const kept = new Set(source.receipts.map(idOf));
  const byOffset = [...receiver.receipts].sort((a, b) => a.toOffset - b.toOffset);
  return {
    crossed: byOffset
      .filter(({ toOffset }) => toOffset > after)
      .map((receipt) => ({
        from: receipt.fromOffset,
        to: receipt.toOffset,
        at: new Date(receipt.receivedAt),
        isCopyMissing: !kept.has(idOf(receipt)),
      })),
    notCrossed: reached < source.last ? { from: reached + 1, to: source.last } : undefined,
    quarantined: receiver.quarantined,
    problems: [
      ...pastProblems(source, frontier),
      ...coverProblems(byOffset, reached, after),
      ...receiptProblems(source, receiver, isGenuine),
    ],
  };
}

function pastProblems({ epoch, last, chains }: SourceSide, frontier: Frontier | undefined): string[] {
  if (!frontier) return [];
  if (frontier.epoch !== epoch)
    return [`the receiver follows epoch ${frontier.epoch}, and the source is in epoch ${epoch}`];
  if (frontier.offset > last)
    return [
      `the receiver has offsets up to ${frontier.offset}, and the source ends at ${last}: it was restored from a backup`,
    ];
  const chain = chains.get(frontier.offset);
  return chain !== undefined && chain !== frontier.chain
    ? [`at offset ${frontier.offset} source and receiver have different chain hashes`]
    : [];
}

/** Receipts of the receiver must lie one behind the other, from an offset to the frontier. */
function coverProblems(byOffset: readonly SignedReceipt[], reached: number, after: number): string[] {
  const problems: string[] = [];
  let covered = after;
  for (const { fromOffset, toOffset } of byOffset) {
    if (fromOffset > covered + 1)
      problems.push(`no receipt covers offsets ${covered + 1} to ${fromOffset - 1}`);
    covered = Math.max(covered, toOffset);
  }
  if (covered < reached) problems.push(`no receipt covers offsets ${covered + 1} to ${reached}`);
  return problems;
}

function receiptProblems(
  source: SourceSide,
  receiver: ReceiverSide,
  isGenuine: (receipt: SignedReceipt) => boolean,
): string[] {
  const known = new Set(receiver.receipts.map(idOf));
  const all = new Map([...receiver.receipts, ...source.receipts].map((receipt) => [idOf(receipt), receipt]));
  return [...all.values()].flatMap((receipt) => {
    const name = `the receipt for offsets ${receipt.fromOffset} to ${receipt.toOffset}`;
    if (!isGenuine(receipt)) return [`${name} is not signed by the receiver`];
    if (!known.has(idOf(receipt)))
      return [`${name} is known to the source only: the receiver was restored from a backup`];
    const chain = receipt.epoch === source.epoch ? source.chains.get(receipt.toOffset) : undefined;
    return chain !== undefined && chain !== receipt.chain
      ? [
          `${name} has another chain hash than the source's log has there: facts up to ${receipt.toOffset} were changed after they crossed`,
        ]
      : [];
  });
}

const idOf = (receipt: SignedReceipt): string =>
  [
    receipt.epoch,
    receipt.fromOffset,
    receipt.toOffset,
    receipt.chain,
    Buffer.from(receipt.signature).toString('hex'),
  ].join(' ');
