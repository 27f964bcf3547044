import {
  cutToBytes,
  type Measured,
  type Page,
  type PageRequest,
  pageOf,
  pageRequest,
  withinPageBytes,
} from '../../engine/paging.ts';
import { requireId } from '../../engine/validate.ts';
import { requireDeliveryId } from './deliveries.ts';
import type { Store } from './store.ts';

/** One attempt to deliver: a row of `webhook_deliveries`. */
export interface DeliveryAttempt {
  readonly id: string;
  readonly tenantId: string;
  /** The same on every attempt; X-BPC-Delivery-Id. */
  readonly deliveryId: string;
  /** The same also when it is redelivered; webhook-id. */
  readonly eventId: string;
  readonly eventType: string;
  readonly endpointId: string;
  readonly attempt: number;
  readonly status: 'SUCCEEDED' | 'FAILED';
  readonly httpStatus: number | null;
  readonly responseHeaders: Readonly<Record<string, string | readonly string[]>> | null;
  readonly responseBody: string | null;
  readonly errorCode: string | null;
  readonly error: string | null;
  readonly durationMs: number;
  readonly attemptedAt: Date;
}

export interface AttemptFilter {
  readonly tenantId?: string;
  readonly endpointId?: string;
  readonly deliveryId?: string;
  readonly eventId?: string;
  readonly status?: 'SUCCEEDED' | 'FAILED';
}

/** Newest first. */
export async function listAttempts(
  store: Store,
  filter: AttemptFilter,
  page: PageRequest,
): Promise<Page<DeliveryAttempt>> {
  const { limit, fetchLimit, cursor } = pageRequest(page);
  if (filter.endpointId !== undefined) requireId(filter.endpointId);
  if (filter.deliveryId !== undefined) requireDeliveryId(filter.deliveryId);
  const values: unknown[] = [cursor, fetchLimit];
  const conditions = ['($1::bigint is null or w.id < $1::bigint)'];
  const equal = (column: string, value: unknown): void => {
    if (value !== undefined) conditions.push(`w.${column} = $${values.push(value)}`);
  };
  equal('tenant_id', filter.tenantId);
  equal('endpoint_id', filter.endpointId);
  equal('delivery_id', filter.deliveryId);
  if (filter.eventId !== undefined)
    conditions.push(`w.event_id = any (tallyman_events.ids_of($${values.push(filter.eventId)}))`);
  equal('status', filter.status);
  const { rows } = await store.query<Measured<DeliveryAttempt>>(
    withinPageBytes(
      `select w.id, w.tenant_id as "tenantId", w.delivery_id as "deliveryId",
            tallyman_events.event_id(v.id, v.event_key) as "eventId", v.event_type as "eventType",
            w.endpoint_id as "endpointId", w.attempt, w.status, w.http_status as "httpStatus",
            w.response_headers as "responseHeaders", w.response_body as "responseBody", w.error_code as "errorCode",
            w.error, w.duration_ms as "durationMs", w.attempted_at as "attemptedAt"
       from tallyman_webhooks.webhook_deliveries w
       join tallyman_events.events v on v.id = w.event_id
      where ${conditions.join(' and ')} order by w.id desc limit $2`,
      'id desc',
      `concat("responseHeaders", "responseBody", error)`,
    ),
    values,
  );
  const kept = cutToBytes(rows);
  return pageOf(kept.rows, limit, kept);
}
