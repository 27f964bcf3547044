/** What a peer delivers, before it goes into the forward buffer: what this node cannot take, and objects that must be here. */
import type { DeliveredEntry } from '../domain/delivery.ts';
import { BoundaryError } from '../domain/errors.ts';
import type { ObjectReference } from '../domain/object-reference.ts';
import type { Objects } from '../objects/objects.ts';
import type { DeliveredFact } from '../proto/tallyman/boundary/v1/boundary_pb.ts';
import type { StreamId } from '../store/store.ts';

/** A larger record goes into quarantine: consumers could not fetch it. */
const maxRecordBytes = 1024 * 1024;

/**
 * Throws FAILED_PRECONDITION if an object is not here yet: the peer sends it, and delivers again. An object of that name with
 * other bytes can never come, so that its fact is refused.
 */
export async function receivedEntry(
  objects: Pick<Objects, 'hold'>,
  stream: StreamId,
  {
    offset,
    key,
    digest,
    chain,
    record,
  }: Pick<DeliveredFact, 'offset' | 'key' | 'digest' | 'chain' | 'record'>,
): Promise<DeliveredEntry> {
  const entry = { offset: Number(offset), key, digest, chain, text: record };
  if (Buffer.byteLength(record) > maxRecordBytes)
    return {
      ...entry,
      refusal: { reason: 'too_large', message: `the record has more than ${maxRecordBytes} bytes` },
    };
  const reference = referenceIn(record);
  if (!reference) return entry;
  try {
    const { tenantId, buffer, from } = stream;
    const { bucket, key: objectKey, digest: ofBytes } = reference;
    await objects.hold({ tenantId, bucket, key: objectKey, digest: ofBytes, buffer, from, messageId: key });
    return entry;
  } catch (error) {
    if (!(error instanceof BoundaryError) || error.reason !== 'object_differs') throw error;
    return { ...entry, refusal: { reason: error.reason, message: error.message } };
  }
}

/** A record that cannot be read is refused when it is delivered. */
export function referenceIn(record: string): ObjectReference | undefined {
  try {
    return (JSON.parse(record) as { reference?: ObjectReference } | null)?.reference;
  } catch {
    return undefined;
  }
}
