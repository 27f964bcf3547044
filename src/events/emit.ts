import type { Queryable } from '../engine/database/database.ts';
import { TallymanError } from '../engine/errors.ts';
import { requireText } from '../engine/validate.ts';

export interface NewEvent {
  /** Such as `pallet.moved`. */
  readonly type: string;
  /** What it happened to. Events of one aggregate have an order. */
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly payload: unknown;
  /** Default `default`. */
  readonly tenantId?: string;
  /** The same id again does nothing. Default: an id made from its position. */
  readonly id?: string;
  /** Default: now. */
  readonly occurredAt?: Date;
}

export interface Emitted {
  readonly eventId: string;
  /** Its position among all events; undefined if the event existed already. */
  readonly position: string | undefined;
  /** An event with this id existed already; nothing was done. */
  readonly existing: boolean;
}

/** Writes an event in the transaction of `on`. */
export async function emit(on: Queryable, event: NewEvent): Promise<Emitted> {
  const [emitted] = await emitMany(on, [event]);
  return emitted as Emitted;
}

/** Writes events in one statement, in the transaction of `on`. Returns results in order. */
export async function emitMany(on: Queryable, events: readonly NewEvent[]): Promise<Emitted[]> {
  if (events.length === 0) return [];
  const payloads = events.map(checkedPayload);
  const hasKeys = events.some(({ id }) => id !== undefined);
  const { rows } = await on.query<{ id: string | null }>(
    `select i.id from unnest(tallyman_events.emit_many($1, $2, $3, $4::json[], $5, $6, $7))
       with ordinality as i (id, n) order by i.n`,
    [
      events.map(({ type }) => type),
      events.map(({ aggregateType }) => aggregateType),
      events.map(({ aggregateId }) => aggregateId),
      payloads,
      events.map(({ tenantId = 'default' }) => tenantId),
      hasKeys ? events.map(({ id = null }) => id) : null,
      events.map(({ occurredAt = null }) => occurredAt),
    ],
  );
  return rows.map(({ id }, n) => ({
    eventId: events[n]?.id ?? `evt_${id}`,
    position: id ?? undefined,
    existing: id === null,
  }));
}

/** The payload as JSON, once everything about the event is checked. */
export function checkedPayload(event: NewEvent): string {
  requireEventType(event.type);
  requireText(event.aggregateType, 'the aggregate type', 128);
  requireText(event.aggregateId, 'the aggregate id', 512);
  if (event.id !== undefined) requireEventKey(event.id);
  const payload = JSON.stringify(event.payload ?? null);
  if (payload === undefined) throw new TallymanError('BAD_OPTION', 'the payload of an event must be JSON');
  return payload;
}

/** A token: it is a header of deliveries, and a line break in it would be two headers. */
export const isEventType = (type: string): boolean => /^[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}$/.test(type);

function requireEventType(type: string): void {
  if (typeof type !== 'string' || !isEventType(type))
    throw new TallymanError(
      'BAD_OPTION',
      `${JSON.stringify(type)} is not an event type: expected 1 to 128 letters, digits, ".", "_", ":", "/" or "-"`,
    );
}

function requireEventKey(id: string): void {
  if (!/^[A-Za-z0-9_:-]{1,128}$/.test(id))
    throw new TallymanError(
      'BAD_OPTION',
      `"${id}" is not an event id: expected 1 to 128 letters, digits, "-", "_" or ":"`,
    );
  if (/^evt_\d+$/.test(id))
    throw new TallymanError('BAD_OPTION', `"${id}" looks like an id that Tallyman gives; choose another one`);
}
