/**
 * A fact as it lies in a log, and crosses: JSON of strings and whole numbers, written once by the node that accepted the
 * fact and never changed, since the chain hash of its stream is over these bytes.
 */
import type { Fact } from './fact.ts';
import type { ObjectReference } from './object-reference.ts';
import type { Zone } from './zones.ts';

export interface FactRecord {
  readonly v: 1;
  readonly messageId: string;
  readonly from: Zone;
  readonly to: Zone;
  /** The clock of the node that accepted it, in milliseconds since 1970. */
  readonly acceptedAt: number;
  readonly producedAt: number;
  readonly correlationId?: string;
  readonly causationId?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly subject: string;
  readonly predicate: string;
  /** Canonical JSON, as text: what comes out is what went in. */
  readonly object: string;
  readonly reference?: ObjectReference;
  readonly standsFor?: StandsFor;
  /** Of a fact that was appended again after a restore: each id under which it may have crossed before. */
  readonly formerIds?: readonly string[];
}

/**
 * The fact that a later one stands for, because the receiver could not take it: its content comes again under an id of its
 * own, or the later fact says that it was dropped.
 */
export interface StandsFor {
  readonly epoch: string;
  readonly offset: number;
  readonly messageId: string;
  /** Its content does not come again. */
  readonly isDropped?: true;
}

/** Begins the message ids of facts that were appended again after a restore from a backup. */
export const restoredPrefix = 'restored:';

/** In the place of a fact that a forward buffer could not take: offsets stay those of the source. */
export interface GapRecord {
  readonly v: 1;
  readonly gap: { readonly reason: string; readonly message: string; readonly messageId: string };
}

export function recordOf(fact: Fact, acceptedAt: number): FactRecord {
  const { messageId, from, to, producedAt, correlationId, causationId, labels, reference } = fact;
  return {
    v: 1,
    messageId,
    from,
    to,
    acceptedAt,
    producedAt,
    ...(correlationId !== undefined && { correlationId }),
    ...(causationId !== undefined && { causationId }),
    ...(labels !== undefined && { labels }),
    subject: fact.subject,
    predicate: fact.predicate,
    object: fact.object,
    ...(reference !== undefined && { reference }),
  };
}

/** As a peer has sent it: only what is well-formed counts. */
export function standsForIn({ standsFor }: FactRecord): StandsFor | undefined {
  return standsFor &&
    typeof standsFor.epoch === 'string' &&
    typeof standsFor.messageId === 'string' &&
    Number.isSafeInteger(standsFor.offset)
    ? standsFor
    : undefined;
}

/**
 * As a peer has sent it. Records of older nodes name only the fact that they stand for. Empty: the fact was not appended again after
 * a restore.
 */
export function formerIdsIn(record: FactRecord): readonly string[] {
  if (!record.messageId.startsWith(restoredPrefix)) return [];
  const { formerIds } = record;
  if (Array.isArray(formerIds) && formerIds.every((id) => typeof id === 'string')) return formerIds;
  const first = standsForIn(record)?.messageId;
  return first === undefined ? [] : [first];
}

export const isGap = (record: FactRecord | GapRecord): record is GapRecord => 'gap' in record;
