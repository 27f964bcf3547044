import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import { requireId } from '../../engine/validate.ts';
import { emit } from '../../events/emit.ts';
import { getDelivery } from './deliveries.ts';
import { pingType } from './event-types.ts';
import { noEndpoint } from './not-found.ts';
import type { Store } from './store.ts';
import { wakeForDeliveries } from './wake.ts';

export interface RedeliveryRange {
  readonly endpointId: string;
  /** By the time at which the events were written. */
  readonly from: Date;
  /** Default: now. */
  readonly to?: Date;
  /** Skips events that were delivered or are being delivered. Default true. */
  readonly onlyFailed?: boolean;
  readonly onProgress?: (done: number, total: number) => void;
}

/** Events sent again in one transaction, so that a long range holds no lock for long. */
const batchSize = 200;

/** Sends a `webhook.ping` to this endpoint only, whatever it subscribes to, as a normal delivery. */
export async function ping(
  store: Store,
  endpointId: string,
): Promise<{ deliveryId: string; eventId: string }> {
  requireId(endpointId);
  return store.transaction(async (tx) => {
    const tenantId = await requireEnabled(tx, endpointId);
    const { eventId, position = '' } = await emit(tx, {
      type: pingType.type,
      aggregateType: pingType.aggregateType,
      aggregateId: endpointId,
      payload: { message: 'Is anybody there?' },
      tenantId,
    });
    const [deliveryId = ''] = await deliver(tx, endpointId, [position]);
    return { deliveryId, eventId };
  });
}

/** Sends the same event to the same endpoint again: a new delivery id, the same event id. */
export async function redeliver(
  store: Store,
  deliveryId: string,
): Promise<{ deliveryId: string; eventId: string }> {
  const before = await getDelivery(store, deliveryId);
  if (!before) throw new TallymanError('NOT_FOUND', `there is no delivery ${deliveryId}`);
  const { eventId, eventPosition, endpointId } = before;
  return store.transaction(async (tx) => {
    await requireEnabled(tx, endpointId);
    const [again = ''] = await deliver(tx, endpointId, [eventPosition]);
    return { deliveryId: again, eventId };
  });
}

/** Every event of a time range that the endpoint subscribes to or was sent, oldest first. Returns how many. */
export async function redeliverRange(store: Store, range: RedeliveryRange): Promise<number> {
  const { endpointId, onProgress } = range;
  await requireRange(store, range);
  const rows = await eventsIn(store, range, { after: '0', limit: null });
  let done = 0;
  for (let i = 0; i < rows.length; i += batchSize) {
    const events = rows.slice(i, i + batchSize);
    done += (await store.transaction((tx) => deliver(tx, endpointId, events))).length;
    onProgress?.(done, rows.length);
  }
  return done;
}

/** The same for at most `limit` events behind `after`, in the caller's transaction. `next`: there may be more behind it. */
export async function redeliverPart(
  tx: Queryable,
  range: Omit<RedeliveryRange, 'onProgress'>,
  { after, limit }: { readonly after: string; readonly limit: number },
): Promise<{ readonly redelivered: number; readonly next: string | undefined }> {
  await requireRange(tx, range);
  const events = await eventsIn(tx, range, { after, limit });
  const redelivered = (await deliver(tx, range.endpointId, events)).length;
  return { redelivered, next: events.length === limit ? events.at(-1) : undefined };
}

async function requireRange(
  on: Queryable,
  { endpointId, from, to = new Date() }: RedeliveryRange,
): Promise<void> {
  requireId(endpointId);
  if (Number.isNaN(from.getTime()) || Number.isNaN(to.getTime()) || from >= to)
    throw new TallymanError('BAD_OPTION', 'the range must begin before it ends');
  await requireEnabled(on, endpointId);
}

/** Ids of the events to send again. */
async function eventsIn(
  on: Queryable,
  { endpointId, from, to = new Date(), onlyFailed = true }: RedeliveryRange,
  { after, limit }: { readonly after: string; readonly limit: number | null },
): Promise<string[]> {
  const { rows } = await on.query<{ id: string }>(
    // What the follower has not reached yet, or has held back, has not failed: it will make those deliveries, and both
    // would be sent.
    // Relies on events_by_time and dispatches_of_event.
    `select v.id
       from tallyman_webhooks.endpoints e
       join tallyman_events.events v on v.tenant_id = e.tenant_id and v.created_at >= $2 and v.created_at < $3
      where e.id = $1 and v.id > $5
        and not tallyman_webhooks.is_kept_from(e.id, v.event_type, v.aggregate_id, v.payload)
        and (not $4 or v.id <= greatest(tallyman_events.passed('webhooks'), e.since)
             and not exists (select 1 from tallyman_webhooks.held_back h
                              where h.event_id = v.id and h.endpoint_id = e.id))
        and (tallyman_webhooks.is_subscribed(e.event_types, v.event_type)
             and (e.filter is null or tallyman_webhooks.matches(e.filter, tallyman_webhooks.readable(v.payload)))
          or exists (select 1 from tallyman_webhooks.dispatches d
                      where d.event_id = v.id and d.endpoint_id = e.id))
        and (not $4 or not exists (
              select 1 from tallyman_webhooks.dispatches d
               where d.event_id = v.id and d.endpoint_id = e.id
                 and (d.succeeded_at is not null or tallyman.job_exists(d.job_id))))
      order by v.id limit $6`,
    [endpointId, from, to, onlyFailed, after, limit],
  );
  return rows.map(({ id }) => id);
}

/** In the order given. */
async function deliver(on: Queryable, endpointId: string, events: readonly string[]): Promise<string[]> {
  const { rows } = await on.query<{ ids: string[] }>(
    'select tallyman_webhooks.deliver($1, $2, true) as ids',
    [events, events.map(() => endpointId)],
  );
  const ids = rows[0]?.ids ?? [];
  await wakeForDeliveries(on, ids);
  return ids;
}

/** Returns its tenant. */
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
