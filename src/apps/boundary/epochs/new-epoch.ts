/**
 * The way back after a restore, in the zone that sends. The other zone has facts that this log has lost, and the log has issued their
 * offsets again, or is about to. A new epoch goes on behind both. Facts that lie in between, in the former epoch, cannot cross at
 * their offsets any more: each is appended again, and stands for the first one. It names every id under which it may have crossed, so
 * that the receiver knows whether it has the fact already.
 */
import type { Database } from '../../../engine/database/database.ts';
import { newEpochChain, nextChain } from '../../../engine/log/entry.ts';
import { streamName } from '../domain/delivery.ts';
import { BoundaryError } from '../domain/errors.ts';
import { contentDigest } from '../domain/fact.ts';
import { formerIdsIn, isGap, restoredPrefix, standsForIn } from '../domain/record.ts';
import { peerConsumer } from '../handoff/source.ts';
import type { Objects } from '../objects/objects.ts';
import type { FactStore, StoredEntry, StreamId, StreamState } from '../store/store.ts';
import { epochsBefore, noteStarted, type StartedEpoch, startedEpoch } from './started.ts';

export interface NewEpochOptions {
  readonly database: Database;
  readonly store: FactStore;
  readonly objects: Pick<Objects, 'hold'>;
  /** A store buffer of this node. */
  readonly stream: StreamId;
  /** How far the other zone has come: its epoch too, where it could be asked. */
  readonly reached: { readonly offset: number; readonly epoch?: string };
  readonly onProgress?: (done: number, total: number) => void;
}

export interface NewEpochPlan {
  readonly state: StreamState;
  /** Was started before, and not accepted yet: to be completed. */
  readonly started: StartedEpoch | undefined;
  /** Facts behind it are appended again. */
  readonly confirmed: number;
  /** How many of them are here. */
  readonly again: number;
}

export interface NewEpoch extends StartedEpoch {
  /** Facts of the former epoch that were appended again. */
  readonly again: number;
}

/** Changes nothing. */
export async function planNewEpoch({
  database,
  store,
  stream,
  reached,
}: NewEpochOptions): Promise<NewEpochPlan> {
  const state = await store.state(stream);
  if (!state)
    throw new BoundaryError(
      'FAILED_PRECONDITION',
      'nothing_appended',
      `nothing was appended to ${streamName(stream)} in this database yet: run this again when the first fact is in`,
    );
  const known = await startedEpoch(database, stream, state.epoch);
  const isWaiting = known?.after === reached.offset && reached.epoch !== state.epoch;
  const started = isWaiting ? known : undefined;
  const cursor =
    (await store.consumers(stream)).find(({ name }) => name === peerConsumer(stream.to))?.cursor ?? 0;
  const confirmed = started?.confirmed ?? Math.min(cursor, reached.offset);
  const end = started?.boundary ?? state.last;
  let again = 0;
  for await (const page of entriesBetween(store, stream, confirmed, end)) again += page.length;
  return { state, started, confirmed, again };
}

/** Killed at any point it is completed by running it again. */
export async function startNewEpoch(options: NewEpochOptions): Promise<NewEpoch> {
  const { store, stream, onProgress } = options;
  const plan = await planNewEpoch(options);
  const started = plan.started ?? (await begin(options, plan));
  const epochOf = await epochsBefore(options.database, stream);
  let again = 0;
  for await (const page of entriesBetween(store, stream, started.confirmed, started.boundary)) {
    await appendAgain(options, started, page, epochOf);
    again += page.length;
    onProgress?.(again, Math.max(again, plan.again));
  }
  await dropBehind(options, started);
  return { ...started, again };
}

async function begin(
  { database, store, stream, reached }: NewEpochOptions,
  { state, confirmed }: NewEpochPlan,
): Promise<StartedEpoch> {
  const { last } = state;
  const next = Math.max(last, reached.offset) + 1;
  const epoch = await store.newEpoch(stream, next);
  // Producers go on meanwhile: what follows from the former chain was appended before the epoch began.
  let former = state.chain;
  let end = last;
  for await (const page of entriesBetween(store, stream, last, Number.MAX_SAFE_INTEGER)) {
    const other = page.findIndex((entry) => {
      if (nextChain(former, entry) !== entry.chain) return true;
      former = entry.chain;
      end = entry.offset;
      return false;
    });
    if (other >= 0) break;
  }
  const started: StartedEpoch = {
    epoch,
    formerEpoch: state.epoch,
    after: reached.offset,
    confirmed,
    boundary: Math.max(next - 1, end),
    chain: newEpochChain(former, epoch),
  };
  await noteStarted(database, stream, started);
  return started;
}

/** In their order, under ids of their own: the first ones are taken here. The same once more changes nothing. */
async function appendAgain(
  { store, objects, stream }: NewEpochOptions,
  { epoch, formerEpoch }: StartedEpoch,
  page: readonly StoredEntry[],
  epochOf: (offset: number) => string | undefined,
): Promise<void> {
  const { tenantId, buffer, from, to } = stream;
  const again = page.flatMap(({ offset, key, record }) => {
    if (isGap(record)) return [];
    const first = { epoch: epochOf(offset) ?? formerEpoch, offset, messageId: key };
    const standsFor = standsForIn(record) ?? first;
    const formerIds = [...formerIdsIn(record), key];
    return [{ ...record, messageId: `${restoredPrefix}${epoch}:${offset}`, standsFor, formerIds }];
  });
  await Promise.all(
    again.map(async ({ reference, messageId }) => {
      if (!reference) return;
      const { bucket, key, digest } = reference;
      await objects.hold({ tenantId, bucket, key, digest, buffer, from, to, messageId });
    }),
  );
  await store.appendInOrder(
    stream,
    again.map((record) => ({ record, digest: contentDigest(record) })),
  );
}

const page = 500;

/** Offsets behind what the other zone has cannot be filled with facts of the former epoch: it gets gap records there. */
async function dropBehind(
  { store, stream }: NewEpochOptions,
  { epoch, after, boundary, chain }: StartedEpoch,
): Promise<void> {
  for (let from = after + 1; from <= boundary; from += page) {
    const to = Math.min(boundary, from + page - 1);
    await store.drop(stream, { from, to, chain, epoch });
  }
}

async function* entriesBetween(
  store: FactStore,
  stream: StreamId,
  after: number,
  upTo: number,
): AsyncGenerator<StoredEntry[]> {
  for (let at = after; at < upTo; ) {
    const entries = await store.read(stream, { after: at, limit: page, maxBytes: 4_000_000 });
    const wanted = entries.filter(({ offset }) => offset <= upTo);
    if (wanted.length === 0) return;
    yield wanted;
    at = wanted.at(-1)?.offset ?? upTo;
  }
}
