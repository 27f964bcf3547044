/**
 * The head of a boundary stream on JetStream: its whole state, in one message that every change replaces. A change names the
 * sequence of the head that it was made from, so that of two changes at once the server refuses one.
 */
import { randomUUID } from 'node:crypto';
import { TallymanError } from '../../../../engine/errors.ts';
import { firstChain } from '../../../../engine/log/entry.ts';
import type { Frontier } from '../../domain/delivery.ts';
import { parsed } from './parsed.ts';

export interface Head {
  readonly v: 1;
  readonly epoch: string;
  /** 0: nothing was ever appended. */
  readonly last: number;
  readonly chain: string;
  /** The first offset that was not trimmed. */
  readonly first: number;
  /** Bytes of all records that were ever appended. */
  readonly total: number;
  /** Bytes of those that were trimmed. */
  readonly trimmed: number;
  /** When the last entry was appended, in milliseconds since 1970. It never decreases. */
  readonly at: number;
  /** Offsets that were never issued, because a new epoch began behind them. */
  readonly holes?: readonly (readonly [from: number, to: number])[];
  /** Of a forward buffer: how far the source was followed. */
  readonly source?: Frontier;
}

/** Reads a head. Throws LOG_DAMAGED if it is none, or one of another version: a newer node may have written it. */
export function headIn(text: string, subject: string): Head {
  const head = parsed(text) as Partial<Head> | null | undefined;
  if (head?.v !== 1)
    throw new TallymanError(
      'LOG_DAMAGED',
      `the head of the stream on JetStream (${subject}) has version ${JSON.stringify(head?.v) ?? 'unknown'}, and this node reads version 1. ` +
        'If a newer version of Tallyman wrote it, upgrade this node.',
    );
  const { epoch, chain, last, first, total, trimmed, at } = head;
  if (
    ![epoch, chain].every((each) => typeof each === 'string') ||
    ![last, first, total, trimmed, at].every(Number.isSafeInteger)
  )
    throw new TallymanError(
      'LOG_DAMAGED',
      `the head of the stream on JetStream (${subject}) lacks a field, or has one of another type`,
    );
  return head as Head;
}

export interface KnownHead {
  readonly head: Head;
  /** Of its message; 0: there is none yet. */
  readonly sequence: number;
}

export function newHead(): Head {
  const epoch = randomUUID();
  return { v: 1, epoch, last: 0, chain: firstChain(epoch), first: 1, total: 0, trimmed: 0, at: 0 };
}

/** The first offset after this one that was issued and not trimmed; undefined: there is none. */
export function offsetAfter({ first, last, holes = [] }: Head, after: number): number | undefined {
  let next = Math.max(after + 1, first);
  for (const [from, to] of holes) if (next >= from && next <= to) next = to + 1;
  return next <= last ? next : undefined;
}

/** The highest offset up to this one that was issued and not trimmed; undefined: there is none. */
export function offsetUpTo({ first, last, holes = [] }: Head, upTo: number): number | undefined {
  let found = Math.min(upTo, last);
  for (const [from, to] of [...holes].reverse()) if (found >= from && found <= to) found = from - 1;
  return found >= first ? found : undefined;
}
