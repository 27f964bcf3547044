/**
 * Hand-off by pull: fetches a stream of another zone into the forward buffer here. For zones that let nobody in: the
 * connection goes out, the facts come in.
 */
import { firstChain } from '../../../engine/log/entry.ts';
import { BoundaryError } from '../domain/errors.ts';
import type { ObjectReference } from '../domain/object-reference.ts';
import type { Receipt, SignedReceipt } from '../domain/receipt.ts';
import type { Objects } from '../objects/objects.ts';
import type { StoredFact } from '../proto/tallyman/boundary/v1/boundary_pb.ts';
import { receiptMessage } from '../rpc/messages.ts';
import type { FactStore, StreamId } from '../store/store.ts';
import type { Peer } from './push.ts';
import { receivedEntry, referenceIn } from './receive.ts';
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
}

/** Takes over what there is, or waits for it up to `waitMs`, and returns how many facts that were. */
export async function pullOnce(options: PullOptions, waitMs: number, signal: AbortSignal): Promise<number> {
  const { store, objects, stream, peer, instance, sign } = options;
  const zones = { fromZone: stream.from, toZone: stream.to };
  const consumer = { stream: zones, consumerName: peerConsumer(stream.to), instanceId: instance };
  const have = await store.frontier(stream);
  const { facts, epoch } = await peer.fetchFacts(
    {
      ...consumer,
      limit: options.batch ?? 500,
      waitMs,
      withRecords: true,
      ...(have && { have: { ...have, offset: BigInt(have.offset) } }),
    },
    { signal },
  );
  if (facts.length === 0) return 0;
  for (const { record } of facts) {
    const reference = referenceIn(record);
    if (reference) await fetchObject(options, reference, signal);
  }
  const entries = await Promise.all(facts.map((fact) => receivedEntry(objects, stream, deliveredFact(fact))));
  const delivery = { epoch, chainBefore: have?.chain ?? firstChain(epoch), entries };
  const { frontier, receipt, quarantined } = await store.deliver(stream, delivery, sign);
  // If this is lost, the next fetch says what is here, and that is confirmed then.
  await peer.confirmReceipt(
    {
      ...consumer,
      offset: BigInt(frontier.offset),
      ...(receipt && { receipt: receiptMessage(receipt) }),
      quarantined: quarantined.map(({ offset, reason, message, messageId }) => ({
        offset: BigInt(offset),
        gap: { reason, message, messageId },
      })),
    },
    { signal },
  );
  return entries.length;
}

function deliveredFact({ offset, digest, chain, record, entry }: StoredFact) {
  const key = entry.case === 'fact' ? (entry.value.envelope?.messageId ?? '') : '';
  return { offset, key, digest, chain, record };
}

/** Objects come before the facts that name them. One that is here is not fetched again. */
async function fetchObject(
  { objects, stream, peer }: PullOptions,
  { bucket, key, digest, mediaType }: ObjectReference,
  signal: AbortSignal,
): Promise<void> {
  const name = { tenantId: stream.tenantId, bucket, key };
  const here = await objects.info(name).catch((error: unknown) => {
    if (error instanceof BoundaryError && error.code === 'NOT_FOUND') return undefined;
    throw error;
  });
  // Other bytes under this name: the fact goes into quarantine.
  if (here) return;
  async function* bytes() {
    for await (const { part } of peer.getObject({ bucket, key }, { signal }))
      if (part.case === 'data') yield part.value;
  }
  await objects.put(name, bytes(), { digest, mediaType });
}
