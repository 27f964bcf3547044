/**
 * Compares the entries of two zones, offset by offset, and says which side has changed what. Signed receipts are the judges: from the
 * chain hash of one receipt to that of the next, each side's entries must lead there. A side whose entries do not was changed
 * after the receipt was signed, also where it has computed its own chain hashes anew.
 */
import { chainOver } from '../../../engine/log/entry.ts';

/** What one side says about an offset. */
export interface Proof {
  readonly offset: number;
  /** The message id. Empty, with digest and hash: a gap record whose fact is not kept here. */
  readonly key: string;
  readonly digest: string;
  /** SHA-256 over the record, in hex. */
  readonly textHash: string;
  /** The chain hash as it lies in that side's own log. */
  readonly chain: string;
  /** Of a gap record: why the fact was not taken. */
  readonly gap?: string;
  /** What that side itself has found to be wrong with the entry. */
  readonly damage?: string;
}

export type Side = 'source' | 'receiver';

export interface Tampered {
  readonly side: Side;
  readonly offset: number;
  readonly messageId: string;
  readonly what: string;
}

/** A chain hash that the receiver has signed. */
export interface Anchor {
  readonly offset: number;
  readonly chain: string;
}

export interface CompareOptions {
  readonly source: AsyncIterable<Proof>;
  readonly receiver: AsyncIterable<Proof>;
  /** In the order of their offsets, of one epoch. The first one may be offset 0. */
  readonly anchors: readonly Anchor[];
  /**
   * The first offset of the present epoch. What lies before it is not judged: the source was restored from a backup, and may have
   * other facts there, or none. Default 1.
   */
  readonly firstOfEpoch?: number;
  /** First offsets of epochs: they do not follow from the entry before, and offsets may be missing before them. */
  readonly starts?: ReadonlySet<number>;
}

export interface Comparison {
  readonly tampered: readonly Tampered[];
  /** Offsets that both sides have and that are equal. */
  readonly equal: number;
  /** Facts that the receiver could not take, or that the source dropped. */
  readonly gaps: number;
  /** Offsets before the present epoch at which the source, since it was restored, has other facts than those that crossed. */
  readonly replaced: number;
}

const sides = ['source', 'receiver'] as const;

interface Differing {
  readonly offset: number;
  readonly messageId: string;
}

export async function compareEntries(options: CompareOptions): Promise<Comparison> {
  const found = new Map<string, Tampered>();
  const note = (side: Side, { offset, messageId }: Differing, what: string): void => {
    const id = `${side} ${offset}`;
    if (!found.has(id)) found.set(id, { side, offset, messageId, what });
  };
  const { firstOfEpoch = 1, starts } = options;
  const anchors = new Map(options.anchors.map(({ offset, chain }) => [offset, chain]));
  let equal = 0;
  let gaps = 0;
  let replaced = 0;
  let last = 0;
  /** From the last anchor on. Undefined: some entry is not known. */
  let chains: Record<Side, string | undefined> = { source: anchors.get(0), receiver: anchors.get(0) };
  /** The first offset behind the last anchor. */
  let rangeStart = 1;
  let differing: Differing[] = [];
  for await (const { offset, source, receiver } of inLockstep(options.source, options.receiver)) {
    if (offset !== last + 1) {
      // Trimmed on both sides: what lies before the next anchor is not known from its start.
      const chain = anchors.get(offset - 1);
      chains = { source: chain, receiver: chain };
      rangeStart = offset;
      differing = [];
    }
    last = offset;
    if (source?.damage !== undefined && !starts?.has(offset))
      note('source', differingAt(source), source.damage);
    if (receiver?.damage !== undefined) note('receiver', differingAt(receiver), receiver.damage);
    if (receiver?.gap !== undefined) gaps += 1;
    if (offset < firstOfEpoch) {
      if (source?.textHash && receiver?.textHash) {
        if (areEqual(source, receiver)) equal += 1;
        else replaced += 1;
      }
      const chain = anchors.get(offset);
      chains = { source: chain, receiver: chain };
      rangeStart = offset + 1;
      continue;
    }
    const theirs = receiver?.textHash ? receiver : receiver && source;
    if (source?.textHash && receiver?.textHash) {
      if (areEqual(source, receiver)) equal += 1;
      else differing.push(differingAt(source));
    }
    chains = { source: onwards(chains.source, source), receiver: onwards(chains.receiver, theirs) };
    const chain = anchors.get(offset);
    if (chain === undefined) continue;
    const bad = sides.filter((side) => chains[side] !== undefined && chains[side] !== chain);
    // Where nobody leads elsewhere, it is the side that cannot be computed; if that is true of both, it may be either.
    const suspects = bad.length > 0 ? bad : sides.filter((side) => chains[side] !== chain);
    const what = `it is not what the receipt up to offset ${offset} was signed for`;
    for (const side of suspects) for (const each of differing) note(side, each, what);
    for (const side of bad) {
      const isNamed = [...found.values()].some(
        (each) => each.side === side && each.offset >= rangeStart && each.offset <= offset,
      );
      if (!isNamed)
        note(
          side,
          { offset, messageId: '' },
          `some fact from offset ${rangeStart} to ${offset} is not what the receipt was signed for`,
        );
    }
    chains = { source: chain, receiver: chain };
    rangeStart = offset + 1;
    differing = [];
  }
  for (const each of differing)
    for (const side of sides) note(side, each, 'both sides have other facts here');
  return { tampered: [...found.values()].sort((a, b) => a.offset - b.offset), equal, gaps, replaced };
}

const differingAt = ({ offset, key }: Proof): Differing => ({ offset, messageId: key });

const areEqual = (a: Proof, b: Proof): boolean =>
  a.key === b.key && a.digest === b.digest && a.textHash === b.textHash;

const onwards = (chain: string | undefined, proof: Proof | undefined): string | undefined =>
  chain !== undefined && proof?.textHash ? chainOver(chain, proof) : undefined;

interface Step {
  readonly offset: number;
  readonly source: Proof | undefined;
  readonly receiver: Proof | undefined;
}

async function* inLockstep(
  source: AsyncIterable<Proof>,
  receiver: AsyncIterable<Proof>,
): AsyncGenerator<Step> {
  const [a, b] = [source[Symbol.asyncIterator](), receiver[Symbol.asyncIterator]()];
  try {
    let [left, right] = [await a.next(), await b.next()];
    while (!left.done || !right.done) {
      const mine = left.done ? undefined : left.value;
      const theirs = right.done ? undefined : right.value;
      const offset = Math.min(
        mine?.offset ?? Number.MAX_SAFE_INTEGER,
        theirs?.offset ?? Number.MAX_SAFE_INTEGER,
      );
      const isMine = mine?.offset === offset;
      const isTheirs = theirs?.offset === offset;
      yield { offset, source: isMine ? mine : undefined, receiver: isTheirs ? theirs : undefined };
      if (isMine) left = await a.next();
      if (isTheirs) right = await b.next();
    }
  } finally {
    await a.return?.();
    await b.return?.();
  }
}
