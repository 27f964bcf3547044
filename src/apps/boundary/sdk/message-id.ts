/**
 * Message ids that come out the same every time: a producer that crashed, or is not sure, sends its fact again under the same
 * id, and the node sees that it has it. There is no way here to make a random one: a retry would then be a second fact.
 */
import { createHash } from 'node:crypto';
import { invalid } from '../domain/errors.ts';
import type { ProducerFact } from './fact.ts';

/** A piece of what identifies a fact. A number is the text that JavaScript writes for it. */
export type IdPart = string | number | bigint;

/** Derives the id of a fact from what the fact is about. Called twice for each fact: both ids must be the same. */
export type MessageIdRule = (fact: ProducerFact) => string;

/**
 * SHA-256 over the parts, in hex. Each part goes in as its length in UTF-8 bytes, a colon and the bytes, so that
 * `('ab', 'c')` and `('a', 'bc')` are two ids. Other languages can compute the same.
 *
 * @example messageId('work_order', 'WO-2026-001', 'has_batch_attachment')
 */
export function messageId(...parts: readonly IdPart[]): string {
  if (parts.length === 0) throw invalid('message_id', 'needs at least one part to be made of');
  const sum = createHash('sha256');
  for (const part of parts) {
    const text = String(part);
    if (!text.isWellFormed()) throw invalid('message_id', 'has a part that is not well-formed Unicode');
    sum.update(`${Buffer.byteLength(text)}:${text}`);
  }
  return sum.digest('hex');
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** A UUID of version 5 (RFC 9562): SHA-1 over a namespace, which is a UUID itself, and a name. */
export function uuidV5(namespace: string, name: string): string {
  if (!uuid.test(namespace))
    throw invalid('message_id', `needs a UUID as namespace, got ${JSON.stringify(namespace)}`);
  const bytes = createHash('sha1')
    .update(Buffer.from(namespace.replaceAll('-', ''), 'hex'))
    .update(name)
    .digest()
    .subarray(0, 16);
  bytes.writeUInt8((bytes.readUInt8(6) & 0x0f) | 0x50, 6);
  bytes.writeUInt8((bytes.readUInt8(8) & 0x3f) | 0x80, 8);
  const hex = bytes.toString('hex');
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

/** The id that a fact has, or that the rule gives it. */
export function messageIdOf(fact: ProducerFact, rule: MessageIdRule | undefined): string {
  if (fact.messageId !== undefined) return fact.messageId;
  if (!rule)
    throw invalid(
      'message_id',
      'is missing: derive it from what the fact is about (messageId, uuidV5), or give the producer a rule',
    );
  const id = rule(fact);
  if (rule(fact) !== id)
    throw invalid(
      'message_id',
      'comes out different each time: a rule must derive it from the fact alone, so that a retry has the same one',
    );
  return id;
}
