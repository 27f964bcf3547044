import { randomUUID } from 'node:crypto';
import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import { requireText } from '../../engine/validate.ts';

export interface NewEvent {
  /** Such as `pallet.moved`. */
  readonly type: string;
  /** What it happened to. With `ordered` endpoints, events of one aggregate arrive in order. */
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly payload: unknown;
  /** Default `default`. */
  readonly tenantId?: string;
  /** The same id again does nothing. Default: a new one. */
  readonly id?: string;
  /** Default: now. */
  readonly occurredAt?: Date;
}

export interface Emitted {
  readonly eventId: string;
  /** How many endpoints it goes to. */
  readonly deliveries: number;
  /** There was an event of this id already; nothing was done. */
  readonly existing: boolean;
}

/** Writes an event and its delivery jobs, in the transaction of `on`. */
export async function emit(on: Queryable, event: NewEvent): Promise<Emitted> {
  const { id = randomUUID(), tenantId = 'default' } = event;
  requireText(event.type, 'the event type', 128);
  requireText(event.aggregateType, 'the aggregate type', 128);
  requireText(event.aggregateId, 'the aggregate id', 512);
  if (!/^[A-Za-z0-9_:-]{1,128}$/.test(id))
    throw new TallymanError(
      'BAD_OPTION',
      `"${id}" is not an event id: expected 1 to 128 letters, digits, "-", "_" or ":"`,
    );
  const payload = JSON.stringify(event.payload ?? null);
  if (payload === undefined) throw new TallymanError('BAD_OPTION', 'the payload of an event must be JSON');
  const { rows } = await on.query<{ deliveries: number | null }>(
    `select tallyman_webhooks.emit($1, $2, $3, $4::json, $5, $6, coalesce($7::timestamptz, now())) as deliveries`,
    [event.type, event.aggregateType, event.aggregateId, payload, tenantId, id, event.occurredAt ?? null],
  );
  const deliveries = rows[0]?.deliveries ?? null;
  return { eventId: id, deliveries: deliveries ?? 0, existing: deliveries === null };
}
