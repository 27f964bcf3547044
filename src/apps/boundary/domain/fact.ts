/**
 * A fact as a producer sends it, checked: zones are configured ones, names are well-formed, the object is canonical JSON.
 */
import { hash } from 'node:crypto';
import { invalid } from './errors.ts';
import { canonicalText } from './json.ts';
import { checkReference, type ObjectReference, referenceIn, sameObject } from './object-reference.ts';
import { requireToken } from './text.ts';
import type { Zone, Zones } from './zones.ts';

/** As it comes in, from any transport. */
export interface FactInput {
  readonly messageId: string;
  readonly fromZone: string;
  readonly toZone: string;
  /** Milliseconds since 1970, by the producer's clock. Nothing is ordered or deleted by it. */
  readonly producedAt: number;
  readonly correlationId?: string | undefined;
  readonly causationId?: string | undefined;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  readonly subject: string;
  readonly predicate: string;
  /** Any JSON value, as text. */
  readonly objectJson: string;
  readonly objectRef?: ObjectReference | undefined;
}

export interface Fact {
  readonly messageId: string;
  readonly from: Zone;
  readonly to: Zone;
  readonly producedAt: number;
  readonly correlationId: string | undefined;
  readonly causationId: string | undefined;
  readonly labels: Readonly<Record<string, string>> | undefined;
  readonly subject: string;
  readonly predicate: string;
  /** Canonical JSON. */
  readonly object: string;
  readonly reference: ObjectReference | undefined;
}

/** What makes two facts of one message id the same. */
export interface Content extends Pick<Fact, 'to' | 'subject' | 'predicate' | 'object'> {
  readonly reference?: ObjectReference | undefined;
}

export const factLimits = { messageIdBytes: 256, objectBytes: 512 * 1024, labels: 64 } as const;

const snake = /^[a-z][a-z0-9]*(?:_[a-z0-9]+)*$/;
const labelName = /^[A-Za-z0-9][A-Za-z0-9._/-]{0,127}$/;
/** The end of the year 9999: what every reader of times takes. */
const latest = 253_402_300_799_999;

/** Milliseconds since 1970. */
export const isTime = (ms: unknown): boolean =>
  Number.isSafeInteger(ms) && Number(ms) >= 0 && Number(ms) <= latest;

export function checkFact(input: FactInput, zones: Zones): Fact {
  requireToken(input.messageId, 'envelope.message_id', factLimits.messageIdBytes);
  const from = zones.resolve(input.fromZone, 'envelope.from_zone');
  const to = zones.resolve(input.toZone, 'envelope.to_zone');
  if (from === to)
    throw invalid('envelope.to_zone', `must be another zone than from_zone, got "${to}" twice`);
  if (!isTime(input.producedAt))
    throw invalid('envelope.produced_at_unix_ms', `must be milliseconds since 1970, got ${input.producedAt}`);
  if (input.correlationId) requireToken(input.correlationId, 'envelope.correlation_id', 256);
  if (input.causationId) requireToken(input.causationId, 'envelope.causation_id', 256);
  const labels = checkLabels(input.labels ?? {});
  checkSubject(input.subject, 'fact.subject');
  checkPredicate(input.predicate, 'fact.predicate');
  const object = checkObject(input.objectJson);
  return {
    messageId: input.messageId,
    from,
    to,
    producedAt: input.producedAt,
    correlationId: input.correlationId || undefined,
    causationId: input.causationId || undefined,
    labels,
    subject: input.subject,
    predicate: input.predicate,
    object,
    reference: checkReferences(input.objectRef, object),
  };
}

/** `kind:id`. The kind is lower_snake_case; the id is anything but control characters. */
export function checkSubject(subject: string, field: string): void {
  requireToken(subject, field, 512);
  const colon = subject.indexOf(':');
  if (colon < 1 || colon === subject.length - 1 || !snake.test(subject.slice(0, colon)))
    throw invalid(
      field,
      `must be kind:id with a kind in lower_snake_case, such as work_order:WO-1, got ${JSON.stringify(subject)}`,
    );
}

export const isPredicate = (text: string): boolean => text.length <= 128 && snake.test(text);

export function checkPredicate(predicate: string, field: string): void {
  requireToken(predicate, field, 128);
  if (!snake.test(predicate))
    throw invalid(
      field,
      `must be lower_snake_case, such as has_attachment, got ${JSON.stringify(predicate)}`,
    );
}

/** In the order of their names, so that a label more or less is all that two records differ by. */
export function checkLabels(labels: Readonly<Record<string, string>>): Fact['labels'] {
  const names = Object.keys(labels);
  if (names.length === 0) return undefined;
  if (names.length > factLimits.labels)
    throw invalid('envelope.labels', `has ${names.length} labels; the limit is ${factLimits.labels}`);
  const sorted: Record<string, string> = {};
  for (const name of names.sort()) {
    const value = labels[name] ?? '';
    if (!labelName.test(name))
      throw invalid(
        'envelope.labels',
        `has the name ${JSON.stringify(name.slice(0, 200))}: expected up to 128 letters, digits, ".", "_", "/" and "-", with a letter or digit first`,
      );
    if (value !== '') requireToken(value, `envelope.labels["${name}"]`, 1024);
    sorted[name] = value;
  }
  return sorted;
}

function checkObject(text: string): string {
  if (text === '') throw invalid('fact.object_json', 'is missing: expected any JSON value');
  const bytes = Buffer.byteLength(text);
  if (bytes > factLimits.objectBytes)
    throw invalid(
      'fact.object_json',
      `has ${bytes} bytes; the limit is ${factLimits.objectBytes}. Store it with PutObject and name it in the fact.`,
    );
  return canonicalText(text, 'fact.object_json');
}

function checkReferences(given: ObjectReference | undefined, object: string): ObjectReference | undefined {
  const inside = referenceIn(object, 'fact.object_json');
  if (given === undefined) return inside;
  checkReference(given, 'fact.object_ref');
  if (inside && !sameObject(given, inside))
    throw invalid('fact.object_ref', 'names another object than fact.object_json');
  return given;
}

/**
 * The content's SHA-256, in hex. Each part goes with its length before it, so that no two contents give the same text. The
 * producer's clock, correlation and labels are not in it: a retry may have others.
 */
export function contentDigest({ to, subject, predicate, object, reference }: Content): string {
  const parts = [
    to,
    subject,
    predicate,
    object,
    ...(reference
      ? [
          reference.bucket,
          reference.key,
          reference.digest,
          String(reference.size ?? ''),
          reference.mediaType ?? '',
          reference.fileName ?? '',
        ]
      : []),
  ];
  return hash('sha256', `fact1${parts.map((part) => `${part.length}:${part}`).join('')}`);
}
