/**
 * Which events become facts, and which facts become events (BND-16). Pure: decided from the rules of the configuration and from
 * what is there.
 */
import { hash } from 'node:crypto';
import type { NewEvent } from '../../../events/emit.ts';
import { BoundaryError, invalid } from './errors.ts';
import type { FactInput } from './fact.ts';
import type { FactRecord } from './record.ts';
import type { Zone } from './zones.ts';

export interface EventRule {
  /** `rfid.movement`, or `rfid.*` for everything that begins with `rfid.` */
  readonly event: string;
  readonly to: Zone;
  readonly predicate: string;
  /** With places in braces, such as `tag:{payload.epc_hex}`. Default: from the event's aggregate. */
  readonly subject?: string | undefined;
  readonly labels?: Readonly<Record<string, string>> | undefined;
}

/** An event as it is read for this: times and payload are texts, so that nothing of them is lost. */
export interface EventRow {
  readonly position: string;
  /** Its public id. */
  readonly id: string;
  readonly type: string;
  readonly aggregateType: string;
  readonly aggregateId: string;
  /** ISO 8601 with microseconds, UTC. */
  readonly occurredAt: string;
  readonly createdAt: string;
  /** JSON; null: it is too large for any fact. */
  readonly payload: string | null;
}

/** The types and prefixes that the rules name, as SQL compares them. */
export function typesIn(rules: readonly Pick<EventRule, 'event'>[]): {
  readonly types: readonly string[];
  readonly prefixes: readonly string[];
} {
  const names = rules.map(({ event }) => event);
  return {
    types: names.filter((name) => !name.endsWith('.*')),
    prefixes: names.filter((name) => name.endsWith('.*')).map((name) => name.slice(0, -1)),
  };
}

export const matchesType = ({ event }: Pick<EventRule, 'event'>, type: string): boolean =>
  event.endsWith('.*') ? type.startsWith(event.slice(0, -1)) : type === event;

/**
 * Whether a rule could turn events of the boundary itself into facts. Those tell of facts: two zones whose rules mirror each
 * other would send one fact to and fro forever.
 */
export const namesBoundary = (event: string): boolean =>
  event === '*' || event === '.*' || event.startsWith('boundary.');

/** The fact that a rule makes of an event. Throws INVALID_ARGUMENT if it can never be one. */
export function factOfEvent(event: EventRow, rule: EventRule, from: Zone): FactInput {
  const { payload, createdAt } = event;
  if (payload === null)
    throw new BoundaryError(
      'INVALID_ARGUMENT',
      'too_large',
      'its payload is larger than a fact may be: emit the event with less, or store the content as an object and name it',
    );
  const value: unknown = JSON.parse(payload);
  const about = JSON.stringify({
    id: event.id,
    type: event.type,
    occurred_at: event.occurredAt,
    aggregate_type: event.aggregateType,
    aggregate_id: event.aggregateId,
  });
  // The payload goes in as it was written, so that a number that no double can hold is refused and not changed.
  const objectJson = `{"event":${about},"payload":${payload}}`;
  const subject = subjectOf(event, value, rule.subject);
  return {
    messageId: messageIdOf(event.id, [rule.to, rule.predicate, subject, createdAt, objectJson]),
    fromZone: from,
    toZone: rule.to,
    producedAt: Date.parse(event.occurredAt),
    correlationId: correlationIn(value) ?? event.id,
    causationId: event.id,
    labels: rule.labels,
    subject,
    predicate: rule.predicate,
    objectJson,
  };
}

/**
 * The same each time, so that an event that is handled again gives the fact that is there. The content is in it: a database that
 * was restored or replaced gives the ids of its events to others, and those must not be taken for conflicts or retries.
 */
function messageIdOf(eventId: string, parts: readonly string[]): string {
  const text = parts.map((part) => `${Buffer.byteLength(part)}:${part}`).join('');
  return `event:${eventId}:${hash('sha256', text).slice(0, 32)}`;
}

/** Emitters may say to which work an event belongs. */
function correlationIn(payload: unknown): string | undefined {
  const found = memberOf(payload, ['correlation_id']);
  if (typeof found !== 'string' || found === '' || Buffer.byteLength(found) > 256) return undefined;
  return found.isWellFormed() && !/\p{Cc}/u.test(found) ? found : undefined;
}

const place = /\{([^{}]*)\}/g;

/** Of a template: what is in braces must be something that an event has. */
export function unknownPlaces(template: string): string[] {
  return [...template.matchAll(place)]
    .map(([, name = '']) => name)
    .filter((name) => !/^(aggregate_type|aggregate_id|payload(\.[A-Za-z0-9_-]+)+)$/.test(name));
}

function subjectOf(event: EventRow, payload: unknown, template: string | undefined): string {
  if (template === undefined) return `${kindOf(event.aggregateType)}:${event.aggregateId}`;
  return template.replace(place, (_, name: string) => {
    if (name === 'aggregate_type') return kindOf(event.aggregateType);
    if (name === 'aggregate_id') return event.aggregateId;
    const found = memberOf(payload, name.split('.').slice(1));
    if (typeof found === 'string' || typeof found === 'number') return String(found);
    throw invalid('fact.subject', `cannot be made: the event has no text or number at ${name}`);
  });
}

/** A kind is lower_snake_case. */
const kindOf = (aggregateType: string): string =>
  aggregateType
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, '_')
    .replace(/^_+|_+$/g, '');

function memberOf(value: unknown, path: readonly string[]): unknown {
  let found = value;
  for (const name of path) {
    if (found === null || typeof found !== 'object' || !Object.hasOwn(found, name)) return undefined;
    found = (found as Readonly<Record<string, unknown>>)[name];
  }
  return found;
}

/** A received fact that matches all given filters becomes an event. */
export interface ReceivedRule {
  readonly predicate?: string | undefined;
  readonly from?: Zone | undefined;
}

export const matchesAnyRule = (
  rules: readonly ReceivedRule[],
  { predicate, from }: Pick<FactRecord, 'predicate' | 'from'>,
): boolean =>
  rules.some(
    (rule) =>
      (rule.predicate === undefined || rule.predicate === predicate) &&
      (rule.from === undefined || rule.from === from),
  );

export const receivedType = 'boundary.fact.received';

/** The event for a received fact. An object that makes it larger than an event may be is left out. */
export function eventOfFact(
  tenantId: string,
  record: FactRecord,
  offset: number,
  mostBytes: number,
): NewEvent {
  const { messageId, from, to, subject, reference } = record;
  const payload = {
    message_id: messageId,
    from_zone: from,
    to_zone: to,
    offset,
    subject,
    predicate: record.predicate,
    object: JSON.parse(record.object) as unknown,
    object_omitted: false,
    object_ref: reference ? { bucket: reference.bucket, key: reference.key, digest: reference.digest } : null,
    labels: record.labels ?? {},
    correlation_id: record.correlationId ?? null,
    causation_id: record.causationId ?? null,
    produced_at: new Date(record.producedAt).toISOString(),
    accepted_at: new Date(record.acceptedAt).toISOString(),
  };
  const isTooLarge = Buffer.byteLength(JSON.stringify(payload)) > mostBytes;
  return {
    type: receivedType,
    // Events of one subject have an order, also in lanes of webhooks.
    aggregateType: 'subject',
    aggregateId: subject,
    // A message id is unique for its zone: a consumer that was sought back tells nothing twice.
    id: `fact:${hash('sha256', `${from}/${messageId}`)}`,
    occurredAt: new Date(record.acceptedAt),
    payload: isTooLarge ? { ...payload, object: null, object_omitted: true } : payload,
    tenantId,
  };
}
