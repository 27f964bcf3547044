/** What a consumer gets: facts, and gaps where one is missing. */
import type { ObjectReference } from '../../domain/object-reference.ts';
import type { StoredFact } from '../../proto/tallyman/boundary/v1/boundary_pb.ts';

export interface ReceivedFact {
  /** Where it is in its stream: 1, 2, 3 …, the same in both zones. */
  readonly offset: number;
  /** Changes when the sending zone was restored from a backup; offsets may then be issued again. */
  readonly epoch: string;
  readonly messageId: string;
  readonly fromZone: string;
  readonly toZone: string;
  readonly subject: string;
  readonly predicate: string;
  /** Parsed. */
  readonly object: unknown;
  /** Canonical JSON (RFC 8785). */
  readonly objectJson: string;
  readonly reference: ObjectReference | undefined;
  readonly correlationId: string | undefined;
  readonly causationId: string | undefined;
  readonly labels: Readonly<Record<string, string>>;
  /** By the clock of the producer. */
  readonly producedAt: Date;
  /** By the clock of the node that took it from its producer. */
  readonly acceptedAt: Date;
}

export type Gap =
  /** A fact that this zone could not take, or has had before (`already_delivered`). Its node keeps it in quarantine. */
  | {
      readonly kind: 'quarantined';
      readonly offset: number;
      readonly reason: string;
      readonly message: string;
      readonly messageId: string;
    }
  /** Facts that were removed before this consumer had them. */
  | { readonly kind: 'removed'; readonly fromOffset: number; readonly toOffset: number };

export type Received =
  | { readonly offset: number; readonly fact: ReceivedFact }
  | { readonly offset: number; readonly gap: Gap };

/** Facts of an answer in order, with a gap for each offset that is left out. */
export function receivedOf(facts: readonly StoredFact[], cursor: number, epoch: string): Received[] {
  let expected = cursor + 1;
  return facts.flatMap((stored) => {
    const offset = Number(stored.offset);
    const gap: Gap = { kind: 'removed', fromOffset: expected, toOffset: offset - 1 };
    const missing: Received[] = offset > expected ? [{ offset: offset - 1, gap }] : [];
    expected = offset + 1;
    return [...missing, receivedFact(stored, offset, epoch)];
  });
}

function receivedFact(stored: StoredFact, offset: number, epoch: string): Received {
  if (stored.entry.case === 'gap') {
    const { reason, message, messageId } = stored.entry.value;
    return { offset, gap: { kind: 'quarantined', offset, reason, message, messageId } };
  }
  const { envelope, fact } = stored.entry.value ?? {};
  if (!envelope || !fact) throw new Error(`the node's answer has no fact at offset ${offset}`);
  const { objectRef } = fact;
  return {
    offset,
    fact: {
      offset,
      epoch,
      messageId: envelope.messageId,
      fromZone: envelope.fromZone,
      toZone: envelope.toZone,
      subject: fact.subject,
      predicate: fact.predicate,
      object: JSON.parse(fact.objectJson) as unknown,
      objectJson: fact.objectJson,
      reference: objectRef && {
        bucket: objectRef.bucket,
        key: objectRef.key,
        digest: objectRef.digest,
        ...(objectRef.size !== 0n && { size: Number(objectRef.size) }),
        ...(objectRef.mediaType !== '' && { mediaType: objectRef.mediaType }),
        ...(objectRef.fileName !== '' && { fileName: objectRef.fileName }),
      },
      correlationId: envelope.correlationId,
      causationId: envelope.causationId,
      labels: envelope.labels,
      producedAt: new Date(Number(envelope.producedAtUnixMs)),
      acceptedAt: new Date(Number(stored.acceptedAtUnixMs)),
    },
  };
}
