/**
 * Hand-off by pull: fetches a stream of another zone into the forward buffer here. For zones that let nobody in: the
 * connection goes out, the facts come in.
 */
import { Code, ConnectError } from '@connectrpc/connect';
import { firstChain } from '../../../engine/log/entry.ts';
import type { ObjectReference } from '../domain/object-reference.ts';
import type { Receipt, SignedReceipt } from '../domain/receipt.ts';
import type { Objects } from '../objects/objects.ts';
import type { StoredFact } from '../proto/tallyman/boundary/v1/boundary_pb.ts';
import { droppedRange, quarantinedMessage, receiptMessage } from '../rpc/messages.ts';
import type { FactStore, StreamId } from '../store/store.ts';
import { confirmAgain } from './lost-answers.ts';
import type { Pace } from './pace.ts';
import type { Peer } from './push.ts';
import { type ReceivedFact, type ReceiveLimits, receivedEntry, referenceIn } from './receive.ts';
import { peerConsumer } from './source.ts';

export interface PullOptions {
  readonly store: FactStore;
  readonly objects: Objects;
  /** A forward buffer of this node. */
  readonly stream: StreamId;
  readonly peer: Peer;
  readonly sign: (receipt: Receipt) => SignedReceipt;
  /** Tells processes of this node apart: one of them at a time carries a stream. */
  readonly instance: string;
  /** Facts in one delivery. Default 500. */
  readonly batch?: number;
  readonly limits?: ReceiveLimits;
  /** How fast a backlog drains. Default: as fast as it goes. */
  readonly pace?: Pace;
}

/** Takes over what there is, or waits for it up to `waitMs`, and returns how many facts that were. */
export async function pullOnce(options: PullOptions, waitMs: number, signal: AbortSignal): Promise<number> {
  const { store, objects, stream, peer, instance, sign } = options;
  const zones = { fromZone: stream.from, toZone: stream.to };
  const consumer = { stream: zones, consumerName: peerConsumer(stream.to), instanceId: instance };
  const have = await store.frontier(stream);
  const fetched = await peer.fetchFacts(
    {
      ...consumer,
      ...(options.pace?.batch(options.batch ?? 500) ?? { limit: options.batch ?? 500 }),
      waitMs,
      withRecords: true,
      ...(have && { have: { ...have, offset: BigInt(have.offset) } }),
    },
    { signal },
  );
  const confirmed = Number(fetched.cursor);
  if (have && confirmed < have.offset) {
    await confirmAgain(options, consumer, { after: confirmed, have }, signal);
    return 0;
  }
  const { facts, epoch } = fetched;
  if (facts.length === 0) return 0;
  await options.pace?.take(
    {
      entries: facts.map(({ record }) => ({ text: record })),
      backlog: Number(fetched.backlog),
    },
    signal,
  );
  const dropped = fetched.dropped.map(droppedRange);
  const passed = dropped.at(-1);
  // What comes behind dropped facts is taken by the next step.
  const taken = passed ? [] : facts;
  const fetchedObjects = new Map<string, Pick<ReceivedFact, 'objectBytes' | 'objectLost'>>();
  for (const { record } of taken) {
    const reference = referenceIn(record);
    if (reference) fetchedObjects.set(record, await fetchObject(options, reference, signal));
  }
  const entries = await Promise.all(
    taken.map((fact) =>
      receivedEntry(
        objects,
        stream,
        { ...deliveredFact(fact), ...fetchedObjects.get(fact.record) },
        options.limits,
      ),
    ),
  );
  const chainBefore = passed?.chain ?? have?.chain ?? firstChain(epoch);
  const delivery = { epoch, dropped, chainBefore, entries };
  const { frontier, receipt, quarantined } = await store.deliver(stream, delivery, sign);
  // If this is lost, the next fetch says that it is not confirmed, and it is sent again then.
  await peer.confirmReceipt(
    {
      ...consumer,
      offset: BigInt(frontier.offset),
      ...(receipt && { receipt: receiptMessage(receipt) }),
      quarantined: quarantined.map(quarantinedMessage),
    },
    { signal },
  );
  return passed ? passed.to - (have?.offset ?? 0) : entries.length;
}

function deliveredFact({ offset, digest, chain, record, entry }: StoredFact) {
  const key = entry.case === 'fact' ? (entry.value.envelope?.messageId ?? '') : '';
  return { offset, key, digest, chain, record };
}

/**
 * Objects come before the facts that name them. What the sender has lost is missing here, too: the fact goes into quarantine.
 */
async function fetchObject(
  options: PullOptions,
  reference: ObjectReference,
  signal: AbortSignal,
): Promise<Pick<ReceivedFact, 'objectBytes' | 'objectLost'>> {
  try {
    return { objectBytes: await takeObject(options, reference, signal) };
  } catch (error) {
    const { code, rawMessage } = ConnectError.from(error);
    if (code !== Code.DataLoss) throw error;
    return { objectLost: rawMessage.replace(/^object_lost: /, '') };
  }
}

/** One that is here is not fetched again. Returns the size; an object that is too large here is left where it is. */
async function takeObject(
  { objects, stream, peer }: PullOptions,
  { bucket, key, digest, mediaType }: ObjectReference,
  signal: AbortSignal,
): Promise<number> {
  const name = { tenantId: stream.tenantId, bucket, key };
  const here = await objects.find(name);
  // Other bytes under this name: the fact goes into quarantine.
  if (here) return here.size;
  const from = await objects.resumable(name);
  const { size, bytes, leave } = await openObject(peer, { bucket, key, from }, signal).catch(
    (error: unknown) => {
      // More than the whole is the rest of another object.
      if (from === 0 || ConnectError.from(error).code !== Code.OutOfRange) throw error;
      return openObject(peer, { bucket, key, from: 0 }, signal);
    },
  );
  try {
    if (size <= objects.maxBytes)
      await objects.put(name, bytes.rest, {
        ...{ digest, mediaType, from: bytes.from },
        size: size - bytes.from,
      });
  } finally {
    await leave();
  }
  return size;
}

async function openObject(
  peer: Peer,
  { bucket, key, from }: Pick<ObjectReference, 'bucket' | 'key'> & { readonly from: number },
  signal: AbortSignal,
) {
  const parts = peer.getObject({ bucket, key, fromByte: BigInt(from) }, { signal })[Symbol.asyncIterator]();
  const first = await parts.next();
  const size = !first.done && first.value.part.case === 'info' ? Number(first.value.part.value.size) : 0;
  const leave = async (): Promise<void> => {
    await parts.return?.();
  };
  async function* rest() {
    try {
      for (let next = await parts.next(); !next.done; next = await parts.next())
        if (next.value.part.case === 'data') yield next.value.part.value;
    } finally {
      await leave();
    }
  }
  return { size, bytes: { from, rest: rest() }, leave };
}
