/** What one zone knows about a stream, asked here or over the line. */
import type { Proof } from '../domain/compare.ts';
import type { Frontier } from '../domain/delivery.ts';
import type { SignedReceipt } from '../domain/receipt.ts';
import type { Peer } from '../handoff/push.ts';
import { refusedIn } from '../handoff/source.ts';
import { frontierOf, receiptOf } from '../rpc/messages.ts';
import type { FactStore, Resolution, StreamId } from '../store/store.ts';
import { proofIn, proofsAfter } from './proofs.ts';

export interface QuarantinedFact {
  readonly offset: number;
  readonly messageId: string;
  readonly reason: string;
  readonly message: string;
  /** How it was resolved, and the offset of the later fact. Undefined: it is open. */
  readonly resolved?: { readonly how: Resolution['how']; readonly by: number };
}

export interface Crossings {
  readonly receipts: readonly SignedReceipt[];
  readonly quarantined: readonly QuarantinedFact[];
}

export interface CrossingSide {
  /** Of the source: its last entry. Of the receiver: how far it has come. Undefined: it has nothing. */
  frontier(): Promise<Frontier | undefined>;
  /** What reaches beyond an offset, and the receipt that ends there. */
  crossings(after: number): Promise<Crossings>;
  proofs(after: number): AsyncIterable<Proof>;
}

const page = 500;

export function localSide(store: FactStore, stream: StreamId): CrossingSide {
  return {
    frontier: async () => {
      if (stream.buffer === 'forward') return store.frontier(stream);
      const state = await store.state(stream);
      return state && { epoch: state.epoch, offset: state.last, chain: state.chain };
    },
    crossings: async (start) => ({
      receipts: await all(
        beforeEndAt(start),
        (after) => store.receipts(stream, { after, limit: page }),
        (each) => each.toOffset,
      ),
      quarantined: (
        await all(
          start,
          (after) => store.quarantinedNotes(stream, { after, limit: page }),
          (each) => each.offset,
        )
      ).map(({ offset, messageId, reason, message, resolution }) => ({
        offset,
        messageId,
        reason,
        message,
        ...(resolution && { resolved: { how: resolution.how, by: resolution.by } }),
      })),
    }),
    proofs: (start) => paged(start, (after) => proofsAfter(store, stream, { after, limit: page })),
  };
}

export function peerSide(peer: Peer, id: StreamId, signal: AbortSignal): CrossingSide {
  const stream = { fromZone: id.from, toZone: id.to };
  const ask = (after: number) =>
    peer.listCrossings({ stream, afterOffset: BigInt(after), limit: page }, { signal });
  return {
    frontier: async () => {
      const { frontier } = await peer.getFrontier({ stream }, { signal });
      return frontier && frontierOf(frontier);
    },
    crossings: async (start) => ({
      receipts: (
        await all(
          beforeEndAt(start),
          async (after) => (await ask(after)).receipts,
          (each) => Number(each.toOffset),
        )
      ).map((receipt) => receiptOf(receipt, id)),
      quarantined: (
        await all(
          start,
          async (after) => (await ask(after)).quarantined,
          (each) => Number(each.offset),
        )
      ).flatMap((each) => refusedIn(each) ?? []),
    }),
    proofs: (start) =>
      paged(start, async (after) => {
        const { entries } = await peer.listProofs(
          { stream, afterOffset: BigInt(after), limit: page },
          { signal },
        );
        return entries.map(proofIn);
      }),
  };
}

const beforeEndAt = (offset: number): number => Math.max(0, offset - 1);

async function all<T>(
  start: number,
  read: (after: number) => Promise<T[]>,
  offsetOf: (item: T) => number,
): Promise<T[]> {
  const items: T[] = [];
  for (let after = start; ; ) {
    const some = await read(after);
    const last = some.at(-1);
    if (!last) return items;
    items.push(...some);
    after = offsetOf(last);
  }
}

async function* paged(start: number, read: (after: number) => Promise<Proof[]>): AsyncGenerator<Proof> {
  for (let after = start; ; ) {
    const some = await read(after);
    const last = some.at(-1);
    if (!last) return;
    yield* some;
    after = last.offset;
  }
}
