/** What may be trimmed, and what keeps the rest from it. */
import { peerConsumer } from './handoff/source.ts';
import type { ConsumerState, FactStore, StreamId, StreamState } from './store/store.ts';

export interface Pin {
  /** The consumer that is behind all others; a peer is one of them. Undefined: there is none, so nothing is confirmed. */
  readonly name: string | undefined;
  readonly cursor: number;
  /** Facts after its cursor. */
  readonly backlog: number;
  readonly confirmedAt: Date | undefined;
}

/** What pins the space of a stream. Undefined if everything is confirmed. */
export function pinOf(state: StreamState, consumers: readonly ConsumerState[]): Pin | undefined {
  const peer = consumers.length > 0 ? missingPeer(state, consumers) : undefined;
  const slowest =
    peer === undefined
      ? consumers.reduce<ConsumerState | undefined>((a, b) => (a && a.cursor <= b.cursor ? a : b), undefined)
      : { name: peer, cursor: 0, confirmedAt: undefined };
  const cursor = Math.max(slowest?.cursor ?? 0, state.first - 1);
  const backlog = state.last - cursor;
  if (backlog <= 0) return undefined;
  return { name: slowest?.name, cursor, backlog, confirmedAt: slowest?.confirmedAt };
}

/**
 * The consumer of the zone that facts go to, if there is none yet: where that zone connects, or bundles are carried, it begins with the
 * first fetch or the first receipts. Until then nothing of a store buffer is confirmed.
 */
function missingPeer({ buffer, to }: StreamId, consumers: readonly ConsumerState[]): string | undefined {
  const peer = peerConsumer(to);
  return buffer === 'store' && !consumers.some(({ name }) => name === peer) ? peer : undefined;
}

export function describePin(pin: Pin | undefined): string {
  if (!pin) return 'Everything is confirmed: it goes with the next trim.';
  const { name, cursor, backlog, confirmedAt } = pin;
  if (name === undefined)
    return `No consumer has confirmed anything: ${backlog} facts wait for the first one.`;
  const since = confirmedAt
    ? `last confirmed at ${confirmedAt.toISOString()}`
    : 'has never confirmed anything';
  return `Consumer "${name}" pins ${backlog} facts after offset ${cursor}; it ${since}.`;
}

/**
 * Trims facts that every consumer has confirmed and that are older than this, by the node's clock. A fact that some
 * consumer has not confirmed stays, however old it is; so does everything while there is no consumer, and in a store buffer while the
 * zone that it goes to has not fetched yet.
 */
export async function trimConfirmed(store: FactStore, stream: StreamId, olderThan: Date): Promise<number> {
  const confirmed = await confirmedUpTo(store, stream);
  if (confirmed < 1) return 0;
  const young = await store.offsetAt(stream, olderThan);
  const upTo = Math.min(young - 1, confirmed);
  return upTo < 1 ? 0 : store.trim(stream, upTo);
}

/** Facts in one step: about as many too many are trimmed at most. */
const mostAtOnce = 5000;

/**
 * The same for a stream that is short of room, whatever the age of its facts: one step towards this many bytes, the oldest first. How many
 * facts that are is estimated from their average size. `isMore`: another step may trim more.
 */
export async function trimToFit(
  store: FactStore,
  stream: StreamId,
  downToBytes: number,
): Promise<{ readonly trimmed: number; readonly isMore: boolean }> {
  const confirmed = await confirmedUpTo(store, stream);
  const { first, last, bytes } = (await store.state(stream)) ?? { first: 1, last: 0, bytes: 0 };
  if (bytes <= downToBytes || confirmed < first) return { trimmed: 0, isMore: false };
  const count = Math.ceil(((last - first + 1) * (bytes - downToBytes)) / bytes);
  const upTo = Math.min(confirmed, first - 1 + Math.min(count, mostAtOnce));
  return { trimmed: await store.trim(stream, upTo), isMore: upTo < confirmed };
}

/** Whether a trim would find facts that every consumer has confirmed. */
export async function hasConfirmed(store: FactStore, stream: StreamId): Promise<boolean> {
  const confirmed = await confirmedUpTo(store, stream);
  return confirmed > 0 && confirmed >= ((await store.state(stream))?.first ?? 1);
}

/**
 * What every consumer has confirmed; 0: nothing. Ask before the state of the stream: a consumer that is created in between begins at
 * the oldest fact that is left.
 */
async function confirmedUpTo(store: FactStore, stream: StreamId): Promise<number> {
  const consumers = await store.consumers(stream);
  if (consumers.length === 0 || missingPeer(stream, consumers) !== undefined) return 0;
  return Math.min(...consumers.map(({ cursor }) => cursor));
}
