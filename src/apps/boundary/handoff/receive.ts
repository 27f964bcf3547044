/** What a peer delivers, before it goes into the forward buffer: what this node cannot take, and objects that must be here. */
import type { DeliveredEntry } from '../domain/delivery.ts';
import { BoundaryError } from '../domain/errors.ts';
import { type ObjectReference, referenceOf } from '../domain/object-reference.ts';
import { requireToken } from '../domain/text.ts';
import type { Objects } from '../objects/objects.ts';
import type { StreamId } from '../store/store.ts';

export interface ReceiveLimits {
  /** A larger record goes into quarantine. At most 1 MiB: consumers could not fetch more. */
  readonly maxRecordBytes: number;
}

export const defaultReceiveLimits: ReceiveLimits = { maxRecordBytes: 1024 * 1024 };

const mostOfAMessage = 1024;

/** As a peer has sent it. */
const printable = (text: string): string => text.slice(0, mostOfAMessage).replace(/\p{C}/gu, ' ');

/** A fact on its way, from any transport. */
export interface ReceivedFact {
  readonly offset: number | bigint;
  /** The message id. */
  readonly key: string;
  readonly digest: string;
  readonly chain: string;
  /** The record, byte for byte. */
  readonly record: string;
  /** The size of the object that the fact names; 0: not said. */
  readonly objectBytes?: number | bigint;
  /** Why the sender cannot send the object; empty: it can. */
  readonly objectLost?: string;
}

/**
 * A reference that no node would have accepted is refused: holds of many callers share a statement, which it would make fail for
 * all of them. Throws FAILED_PRECONDITION if an object is not here yet: the peer sends it, and delivers again. An object of that name with
 * other bytes, one that is too large here, or one that the peer has lost cannot come, so that its fact is refused.
 */
export async function receivedEntry(
  objects: Pick<Objects, 'hold' | 'maxBytes'>,
  stream: StreamId,
  { offset, key, digest, chain, record, objectBytes = 0, objectLost = '' }: ReceivedFact,
  { maxRecordBytes }: ReceiveLimits = defaultReceiveLimits,
): Promise<DeliveredEntry> {
  const entry = { offset: Number(offset), key, digest, chain, text: record };
  const tooLarge = (what: string, limit: number): DeliveredEntry => ({
    ...entry,
    refusal: {
      reason: 'too_large',
      message: `${what} has more than ${limit} bytes, which is the limit here`,
    },
  });
  if (Buffer.byteLength(record) > maxRecordBytes) return tooLarge('the record', maxRecordBytes);
  const unchecked = uncheckedReferenceIn(record);
  if (unchecked === undefined) return entry;
  requireToken(key, 'key', 256);
  try {
    const reference = referenceOf(unchecked, 'reference');
    const { tenantId, buffer, from, to } = stream;
    const { bucket, key: objectKey, digest: ofBytes } = reference;
    await objects.hold({
      tenantId,
      bucket,
      key: objectKey,
      digest: ofBytes,
      buffer,
      from,
      to,
      messageId: key,
    });
    return entry;
  } catch (error) {
    if (!(error instanceof BoundaryError)) throw error;
    if (error.reason === 'object_differs' || error.reason === 'invalid_field')
      return { ...entry, refusal: { reason: error.reason, message: error.message } };
    if (error.reason === 'object_not_stored' && Number(objectBytes) > objects.maxBytes)
      return tooLarge('the object', objects.maxBytes);
    if (error.reason === 'object_not_stored' && objectLost !== '')
      return { ...entry, refusal: { reason: 'object_lost', message: printable(objectLost) } };
    throw error;
  }
}

/** Undefined also for a reference that is refused when it is delivered. */
export function referenceIn(record: string): ObjectReference | undefined {
  try {
    const reference = uncheckedReferenceIn(record);
    return reference === undefined ? undefined : referenceOf(reference, 'reference');
  } catch {
    return undefined;
  }
}

/** A record that cannot be read is refused when it is delivered. */
function uncheckedReferenceIn(record: string): unknown {
  try {
    return (JSON.parse(record) as { reference?: unknown } | null)?.reference;
  } catch {
    return undefined;
  }
}
