import { TallymanError } from '../../engine/errors.ts';
import { type Page, type PageRequest, pageRequest } from '../../engine/paging.ts';
import { requireId } from '../../engine/validate.ts';
import type { Store } from './store.ts';

export const deliveryStates = ['PENDING', 'DELIVERED', 'FAILED'] as const;

/**
 * PENDING: it will be attempted (again). DELIVERED: the receiver answered 2xx. FAILED: given up; its job is a dead letter, or
 * ended because the endpoint was disabled or removed. A dead letter that is redriven is PENDING again.
 */
export type DeliveryState = (typeof deliveryStates)[number];

/** The delivery of one event to one endpoint. */
export interface Delivery {
  readonly id: string;
  readonly tenantId: string;
  readonly state: DeliveryState;
  readonly eventId: string;
  /** Its place among all events. */
  readonly eventPosition: string;
  readonly eventType: string;
  readonly endpointId: string;
  /** Its job: `tallyman jobs show`. */
  readonly jobId: string;
  /** A user requested it. */
  readonly manual: boolean;
  readonly createdAt: Date;
  readonly succeededAt: Date | null;
  /** Requests that were sent. */
  readonly attempts: number;
  readonly lastAttemptAt: Date | null;
  readonly lastHttpStatus: number | null;
  /** Of the last attempt, if it failed. */
  readonly lastError: string | null;
  /** While PENDING: from when on it is attempted. In the past: it is due, or under way. */
  readonly nextAttemptAt: Date | null;
}

export interface DeliveryFilter {
  readonly tenantId?: string;
  readonly endpointId?: string;
  readonly eventId?: string;
  readonly eventType?: string;
  readonly state?: DeliveryState;
  /** By the time at which the delivery was made. */
  readonly from?: Date;
  readonly to?: Date;
}

/** Newest first. The cursor is the id of the job: it is drawn when the delivery is made. */
export async function listDeliveries(
  store: Store,
  filter: DeliveryFilter,
  page: PageRequest,
): Promise<Page<Delivery>> {
  const { limit, fetchLimit, cursor } = pageRequest(page);
  if (filter.endpointId !== undefined) requireId(filter.endpointId);
  const values: unknown[] = [fetchLimit];
  const conditions: string[] = [];
  const where = (condition: string, value: unknown): void => {
    if (value !== undefined && value !== null) conditions.push(`${condition} $${values.push(value)}`);
  };
  where('d.job_id <', cursor);
  where('d.tenant_id =', filter.tenantId);
  where('d.endpoint_id =', filter.endpointId);
  where('v.event_type =', filter.eventType);
  where('d.created_at >=', filter.from);
  where('d.created_at <', filter.to);
  if (filter.eventId !== undefined)
    conditions.push(`d.event_id = any (tallyman_events.ids_of($${values.push(filter.eventId)}))`);
  if (filter.state !== undefined) conditions.push(stateConditions[filter.state]);
  const rows = await select(
    store,
    `${conditions.length > 0 ? `where ${conditions.join(' and ')}` : ''} order by d.job_id desc limit $1`,
    values,
  );
  const items = rows.slice(0, limit);
  return { items, nextCursor: rows.length > limit ? (items.at(-1)?.jobId ?? null) : null };
}

export async function getDelivery(store: Store, id: string): Promise<Delivery | undefined> {
  requireDeliveryId(id);
  return (await select(store, 'where d.id = $1', [id]))[0];
}

export function requireDeliveryId(id: string): void {
  if (!/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(id))
    throw new TallymanError('BAD_OPTION', `"${id}" is not a delivery id: expected a UUID`);
}

/** Rely on dispatches_undelivered. */
const stateConditions: Readonly<Record<DeliveryState, string>> = {
  PENDING: 'd.succeeded_at is null and tallyman.job_exists(d.job_id)',
  FAILED: 'd.succeeded_at is null and not tallyman.job_exists(d.job_id)',
  DELIVERED: 'd.succeeded_at is not null',
};

async function select(store: Store, which: string, values: unknown[]): Promise<Delivery[]> {
  const { rows } = await store.query<Delivery>(
    `select d.id, d."tenantId", d."eventId", d."eventPosition", d."eventType", d."endpointId", d."jobId", d.manual,
            d."createdAt", d."succeededAt", coalesce(l.attempts, 0) as attempts, l.at as "lastAttemptAt",
            l.http_status as "lastHttpStatus", l.error as "lastError", j.due_at as "nextAttemptAt",
            case when d."succeededAt" is not null then 'DELIVERED' when j.due_at is not null then 'PENDING'
                 else 'FAILED' end as state
       from (select d.id, d.tenant_id as "tenantId", tallyman_events.event_id(v.id, v.event_key) as "eventId",
                    v.id as "eventPosition", v.event_type as "eventType", d.endpoint_id as "endpointId",
                    d.job_id as "jobId", d.manual, d.created_at as "createdAt", d.succeeded_at as "succeededAt"
               from tallyman_webhooks.dispatches d join tallyman_events.events v on v.id = d.event_id
              ${which}) d
       cross join lateral (select case when d."succeededAt" is null then tallyman.due_at(d."jobId") end as due_at) j
       left join lateral (
         select w.attempt as attempts, w.attempted_at as at, w.http_status, w.error
           from tallyman_webhooks.webhook_deliveries w where w.delivery_id = d.id order by w.id desc limit 1) l on true
      order by d."jobId" desc`,
    values,
  );
  return rows;
}
