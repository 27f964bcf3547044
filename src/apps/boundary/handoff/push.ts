/**
 * Hand-off by push: carries a stream of this zone into the forward buffer of another one.
 *
 * The receiver knows how far it has come; the sender asks it, and goes on from there. So a step that was cut off at any
 * point, on either side, is simply done again: what was received is skipped there, and confirmed here.
 */
import { type Client, Code, ConnectError } from '@connectrpc/connect';
import { messageOf } from '../../../engine/errors.ts';
import { fetchFacts } from '../consume.ts';
import { startFrontier } from '../domain/delivery.ts';
import { BoundaryError } from '../domain/errors.ts';
import type { ObjectReference } from '../domain/object-reference.ts';
import type { SignedReceipt } from '../domain/receipt.ts';
import { isGap } from '../domain/record.ts';
import { describeObject, lossIn, type Objects } from '../objects/objects.ts';
import type { BoundaryService } from '../proto/tallyman/boundary/v1/boundary_pb.ts';
import { droppedMessage, frontierOf } from '../rpc/messages.ts';
import type { FactStore, StoredEntry, StreamId } from '../store/store.ts';
import { askForAnswers } from './lost-answers.ts';
import type { Pace } from './pace.ts';
import { droppedAfter, goBack, keepAnswer, peerConsumer, requireSamePast } from './source.ts';

export type Peer = Client<typeof BoundaryService>;

export interface PushOptions {
  readonly store: FactStore;
  readonly objects: Objects;
  /** A store buffer of this node. */
  readonly stream: StreamId;
  readonly peer: Peer;
  /** Whether the receiver has signed it. */
  readonly isGenuine: (receipt: SignedReceipt) => boolean;
  /** Tells processes of this node apart: one of them at a time carries a stream. */
  readonly instance: string;
  /**
   * Objects that were sent for facts whose delivery is not confirmed yet. Made empty by each confirmed delivery, and where the
   * receiver says that it has collected one.
   */
  readonly carried: Set<string>;
  /** Facts in one delivery. Default 500. */
  readonly batch?: number;
  /** How fast a backlog drains. Default: as fast as it goes. */
  readonly pace?: Pace;
}

/** Carries what there is, or waits for it up to `waitMs`, and returns how many facts the receiver has taken. */
export async function pushOnce(options: PushOptions, waitMs: number, signal: AbortSignal): Promise<number> {
  const { store, stream, peer, instance } = options;
  const consumer = peerConsumer(stream.to);
  const fetched = await fetchFacts(store, stream, {
    consumer,
    instance,
    ...(options.pace?.batch(options.batch ?? 500) ?? { limit: options.batch ?? 500 }),
    waitMs,
    signal,
  });
  await options.pace?.take(fetched, signal);
  const state = await store.state(stream);
  if (!state || fetched.entries.length === 0) return 0;
  const zones = { fromZone: stream.from, toZone: stream.to };
  const { frontier } = await peer.getFrontier({ stream: zones }, { signal });
  // Nothing was received yet: the log begins with its epoch.
  const reached = frontier ? frontierOf(frontier) : startFrontier(state.epoch);
  await requireSamePast(store, stream, state, reached);
  const entries = fetched.entries.filter(({ offset }) => offset > reached.offset);
  const known = Math.min(reached.offset, fetched.entries.at(-1)?.offset ?? 0);
  // An answer that was lost: the receiver has what was not confirmed here.
  if (known > fetched.cursor)
    await askForAnswers(options, { after: fetched.cursor, upTo: known, reached }, signal);
  if (entries.length === 0) {
    await store.confirm(stream, consumer, instance, known);
    return fetched.entries.length;
  }
  const dropped =
    state.first > reached.offset + 1 ? await droppedAfter(store, stream, state, reached.offset) : [];
  const passed = dropped.at(-1);
  // What comes behind dropped facts is carried by the next step.
  const carried = passed ? [] : entries;
  if (!passed && (entries[0]?.offset ?? 0) > reached.offset + 1) {
    await goBack(store, stream, state, reached);
    return 0;
  }
  const objects = new Map<string, CarriedObject>();
  for (const named of objectsIn(carried))
    objects.set(idOf(named.reference), await carryObject(options, named, signal));
  const objectOf = ({ record }: StoredEntry): CarriedObject | undefined =>
    !isGap(record) && record.reference ? objects.get(idOf(record.reference)) : undefined;
  const delivery = {
    stream: zones,
    epoch: state.epoch,
    dropped: dropped.map(droppedMessage),
    chainBefore: passed?.chain ?? reached.chain,
    facts: carried.map((entry) => {
      const { size = 0, lost = '' } = objectOf(entry) ?? {};
      const { offset, key, digest, chain, text } = entry;
      return {
        offset: BigInt(offset),
        key,
        digest,
        chain,
        record: text,
        objectBytes: BigInt(size),
        objectLost: lost,
      };
    }),
  };
  const answer = await peer.deliverFacts(delivery, { signal }).catch((error: unknown) => {
    // The line was cut for so long that the receiver has collected what no fact named: the next step sends it again.
    if (ConnectError.from(error).rawMessage.startsWith('object_not_stored')) options.carried.clear();
    throw error;
  });
  await keepAnswer({ ...options, sent: carried }, answer);
  options.carried.clear();
  const { offset } = answer.frontier ?? {};
  const last = passed?.to ?? entries.at(-1)?.offset ?? 0;
  const upTo = Math.min(Number(offset ?? 0n), last);
  const confirmed = await store.confirm(stream, consumer, instance, upTo);
  return passed ? passed.to - reached.offset : confirmed - fetched.cursor;
}

/**
 * With nothing to send: asks the receiver how far it has come. Throws if that does not fit the log here, such as after a restore from
 * a backup; a receiver that was restored, and has less than it confirmed, gets it again with the next step.
 */
export async function comparePast(
  store: FactStore,
  stream: StreamId,
  peer: Peer,
  signal: AbortSignal,
): Promise<void> {
  const { frontier } = await peer.getFrontier(
    { stream: { fromZone: stream.from, toZone: stream.to } },
    { signal },
  );
  const state = await store.state(stream);
  if (!state) return;
  const reached = frontier ? frontierOf(frontier) : startFrontier(state.epoch);
  await requireSamePast(store, stream, state, reached);
  const consumers = await store.consumers(stream);
  const { cursor = 0 } = consumers.find(({ name }) => name === peerConsumer(stream.to)) ?? {};
  if (reached.offset < cursor) await goBack(store, stream, state, reached);
}

interface NamedObject {
  readonly reference: ObjectReference;
  /** Of the first fact that names it. */
  readonly offset: number;
}

function objectsIn(entries: readonly StoredEntry[]): NamedObject[] {
  const named = new Map<string, NamedObject>();
  for (const { record, offset } of entries) {
    const reference = isGap(record) ? undefined : record.reference;
    if (reference && !named.has(idOf(reference))) named.set(idOf(reference), { reference, offset });
  }
  return [...named.values()];
}

const idOf = ({ bucket, key, digest }: ObjectReference): string => `${digest} ${bucket}/${key}`;

/** For a smaller object a question takes as long as the object. */
const askFromBytes = 1024 * 1024;

interface CarriedObject {
  readonly size: number;
  /** Why it cannot be sent: its fact goes into quarantine when it is delivered. */
  readonly lost?: string;
}

/**
 * Objects go before the facts that name them. Sending one again changes nothing; an upload that was cut off goes on where it broke
 * off.
 */
async function carryObject(
  { objects, stream, peer, carried }: PushOptions,
  { reference, offset }: NamedObject,
  signal: AbortSignal,
): Promise<CarriedObject> {
  const { bucket, key, digest } = reference;
  const name = { tenantId: stream.tenantId, bucket, key };
  const { size, mediaType = '' } = await objects.info(name);
  if (carried.has(idOf(reference))) return { size };
  const from = size < askFromBytes ? 0 : await firstMissingByte(peer, { bucket, key }, size, signal);
  if (from === undefined) return { size };
  const { bytes } = await objects.get(name, { from });
  let unreadable: unknown;
  async function* parts() {
    const header = { bucket, key, digest, mediaType, fromByte: BigInt(from ?? 0) };
    yield { part: { case: 'header' as const, value: header } };
    const noted = notingFailure(bytes, (error) => {
      unreadable = error;
    });
    for await (const data of noted) yield { part: { case: 'data' as const, value: data } };
  }
  try {
    await peer.putObject(parts(), { signal });
  } catch (error) {
    const lost = lossIn(unreadable);
    if (lost !== undefined) return { size, lost };
    if (unreadable !== undefined)
      throw new BoundaryError(
        'FAILED_PRECONDITION',
        'object_unreadable',
        `${describeObject(name)}, which fact ${offset} names, cannot be read here: ${messageOf(unreadable)}`,
        { cause: unreadable },
      );
    // Another object has this name there, or it is too large there: the fact goes into quarantine when it is delivered.
    const { code, rawMessage } = ConnectError.from(error);
    if (code !== Code.AlreadyExists && !rawMessage.startsWith('object_too_large')) throw error;
  }
  carried.add(idOf(reference));
  return { size };
}

/** Hears only of what fails to be read: when the line is cut the transport throws into the generator that it reads from. */
async function* notingFailure(
  bytes: AsyncIterable<Uint8Array>,
  onFailure: (error: unknown) => void,
): AsyncGenerator<Uint8Array> {
  const reading = bytes[Symbol.asyncIterator]();
  const next = () =>
    reading.next().catch((error: unknown) => {
      onFailure(error);
      throw error;
    });
  try {
    for (let part = await next(); !part.done; part = await next()) yield part.value;
  } finally {
    await reading.return?.();
  }
}

/** Undefined: it is stored there, or is too large there. If that is another object the fact goes into quarantine when it is delivered. */
async function firstMissingByte(
  peer: Peer,
  name: Pick<ObjectReference, 'bucket' | 'key'>,
  size: number,
  signal: AbortSignal,
): Promise<number | undefined> {
  const { stored, uploadOffset, maxBytes } = await peer.findObject(name, { signal });
  if (stored || size > Number(maxBytes)) return undefined;
  // More than the whole is the rest of another object.
  return Number(uploadOffset) > size ? 0 : Number(uploadOffset);
}
