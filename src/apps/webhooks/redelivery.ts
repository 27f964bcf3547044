import { randomUUID } from 'node:crypto';
import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import { requireId } from '../../engine/jobs/jobs.ts';
import { getDelivery } from './deliveries.ts';
import { noEndpoint } from './not-found.ts';
import type { Store } from './store.ts';

export interface RedeliveryRange {
  readonly endpointId: string;
  /** By the time at which the events were written. */
  readonly from: Date;
  /** Default: now. */
  readonly to?: Date;
  /** Leaves out what has been delivered, or is on its way. Default true. */
  readonly onlyFailed?: boolean;
  readonly onProgress?: (done: number, total: number) => void;
}

export const pingEvent = 'webhook.ping';

/** Events sent again in one transaction, so that a long range holds no lock for long. */
const bite = 200;

/** A `webhook.ping` to this endpoint alone, whatever it subscribes to, the way that every delivery goes. */
export async function ping(
  store: Store,
  endpointId: string,
): Promise<{ deliveryId: string; eventId: string }> {
  requireId(endpointId);
  return store.transaction(async (tx) => {
    const tenantId = await requireEnabled(tx, endpointId);
    const eventId = randomUUID();
    await tx.query(
      `insert into tallyman_webhooks.events
         (tenant_id, id, event_type, aggregate_type, aggregate_id, occurred_at, payload)
       values ($1, $2, $3, 'webhook_endpoint', $4, now(), $5)`,
      [tenantId, eventId, pingEvent, endpointId, JSON.stringify({ message: 'Is anybody there?' })],
    );
    const [deliveryId = ''] = await dispatch(tx, endpointId, tenantId, [eventId]);
    return { deliveryId, eventId };
  });
}

/** The same event to the same endpoint once more: a new delivery id, the same event id. */
export async function redeliver(
  store: Store,
  deliveryId: string,
): Promise<{ deliveryId: string; eventId: string }> {
  const before = await getDelivery(store, deliveryId);
  if (!before) throw new TallymanError('NOT_FOUND', `there is no delivery ${deliveryId}`);
  const { eventId, endpointId } = before;
  return store.transaction(async (tx) => {
    const tenantId = await requireEnabled(tx, endpointId);
    const [again = ''] = await dispatch(tx, endpointId, tenantId, [eventId]);
    return { deliveryId: again, eventId };
  });
}

/** Every event of a time range that the endpoint subscribes to or was sent, oldest first. Answers how many. */
export async function redeliverRange(store: Store, range: RedeliveryRange): Promise<number> {
  const { endpointId, from, to = new Date(), onlyFailed = true, onProgress } = range;
  requireId(endpointId);
  if (Number.isNaN(from.getTime()) || Number.isNaN(to.getTime()) || from >= to)
    throw new TallymanError('BAD_OPTION', 'the range must begin before it ends');
  const tenantId = await requireEnabled(store, endpointId);
  const { rows } = await store.query<{ id: string }>(
    // Relies on events_by_time and dispatches_of_event.
    `select v.id
       from tallyman_webhooks.endpoints e
       join tallyman_webhooks.events v on v.tenant_id = e.tenant_id and v.created_at >= $2 and v.created_at < $3
      where e.id = $1 and v.event_type <> '${pingEvent}'
        and (tallyman_webhooks.is_subscribed(e.event_types, v.event_type)
          or exists (select 1 from tallyman_webhooks.dispatches d
                      where d.tenant_id = v.tenant_id and d.event_id = v.id and d.endpoint_id = e.id))
        and (not $4 or not exists (
              select 1 from tallyman_webhooks.dispatches d
               where d.tenant_id = v.tenant_id and d.event_id = v.id and d.endpoint_id = e.id
                 and (d.succeeded_at is not null or tallyman.job_exists(d.job_id))))
      order by v.created_at, v.id`,
    [endpointId, from, to, onlyFailed],
  );
  let done = 0;
  for (let i = 0; i < rows.length; i += bite) {
    const events = rows.slice(i, i + bite).map(({ id }) => id);
    done += (await store.transaction((tx) => dispatch(tx, endpointId, tenantId, events))).length;
    onProgress?.(done, rows.length);
  }
  return done;
}

/** In the order given. */
async function dispatch(
  on: Queryable,
  endpointId: string,
  tenantId: string,
  eventIds: readonly string[],
): Promise<string[]> {
  const { rows } = await on.query<{ id: string | null }>(
    `select tallyman_webhooks.dispatch($1, $2, v.id, true) as id
       from (select id from unnest($3::text[]) with ordinality as u (id, n) order by n) v`,
    [endpointId, tenantId, eventIds],
  );
  return rows.flatMap(({ id }) => (id === null ? [] : [id]));
}

/** Answers its tenant. */
async function requireEnabled(on: Queryable, endpointId: string): Promise<string> {
  const { rows } = await on.query<{ tenantId: string; disabled: boolean }>(
    'select tenant_id as "tenantId", disabled_at is not null as disabled from tallyman_webhooks.endpoints where id = $1',
    [endpointId],
  );
  const [endpoint] = rows;
  if (!endpoint) throw noEndpoint(endpointId);
  if (endpoint.disabled)
    throw new TallymanError('BAD_STATE', `webhook endpoint ${endpointId} is disabled; enable it first`);
  return endpoint.tenantId;
}
