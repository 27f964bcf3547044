import type { TenantDatabase } from '../../../engine/database/tenant.ts';
import { PermanentError } from '../../../engine/errors.ts';
import { isEventType } from '../../../events/emit.ts';
import type { SecretBox } from '../../../secrets/box.ts';
import type { CustomHeaders } from '../headers.ts';
import { headersContext, keyContext, secretContext } from '../secrets.ts';
import type { Secret } from './sign.ts';

/** The payload of a delivery job. */
export interface DeliveryJob {
  readonly delivery: string;
  /** Its place among all events. */
  readonly event: string;
  readonly endpoint: string | number;
}

/** Everything that one attempt needs, read just before it. */
export interface Consignment {
  readonly deliveryId: string;
  readonly eventId: string;
  readonly eventType: string;
  readonly endpointId: string;
  readonly url: string;
  readonly timeoutMs: number;
  readonly retryDelays: readonly number[] | null;
  readonly body: Buffer;
  /** The newest first. */
  readonly secrets: readonly Secret[];
  /** Of Ed25519, the newest first. */
  readonly privateKeys: readonly string[];
  readonly customHeaders: CustomHeaders;
  /** Why the endpoint is disabled, if its deliveries wait until it is enabled. */
  readonly pausedBecause: string | null;
  readonly failures: number;
  /** How much longer the breaker is open; 0: the wait is over, a probe is due; null: it is closed. */
  readonly openMs: number | null;
  /** A probe is under way. */
  readonly isProbed: boolean;
}

interface Row {
  readonly url: string;
  readonly timeout_ms: number;
  readonly retry_delays: number[] | null;
  readonly disabled_reason: string | null;
  readonly disabled_by: string | null;
  readonly headers_sealed: string | null;
  readonly failures: number;
  readonly open_ms: number | null;
  readonly probed: boolean;
  readonly secrets: { readonly sealed: string; readonly key: Secret['bpcKey'] }[];
  readonly sealed_keys: string[];
  readonly event_id: string;
  readonly event_type: string | null;
  readonly body: string | null;
  readonly is_recorded: boolean;
}

export async function loadConsignment(
  on: TenantDatabase,
  box: SecretBox,
  job: DeliveryJob,
): Promise<Consignment> {
  const endpointId = String(job.endpoint);
  const { rows } = await on.query<Row>(
    `select e.url, e.timeout_ms, e.retry_delays,
            case when e.disabled_at is not null then coalesce(e.disabled_reason, 'no reason given') end as disabled_reason,
            e.disabled_by, e.headers_sealed, e.failures,
            case when e.open_until is not null
              then greatest(0, extract(epoch from e.open_until - clock_timestamp()) * 1000)::float8 end as open_ms,
            coalesce(e.probing_until > clock_timestamp(), false) as probed,
            (select coalesce(json_agg(json_build_object('sealed', s.sealed, 'key', s.x_bpc_key) order by s.id desc), '[]')
               from tallyman_webhooks.endpoint_secrets s
              where s.endpoint_id = e.id and (s.expires_at is null or s.expires_at > now())) as secrets,
            array(select k.sealed from tallyman_webhooks.endpoint_keys k
                   where k.endpoint_id = e.id and (k.expires_at is null or k.expires_at > now())
                   order by k.id desc) as sealed_keys,
            tallyman_events.event_id(v.id, v.event_key) as event_id, v.event_type,
            json_build_object(
              'event_id', tallyman_events.event_id(v.id, v.event_key), 'event_type', v.event_type, 'aggregate_type', v.aggregate_type,
              'aggregate_id', v.aggregate_id,
              'occurred_at', to_char(v.occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
              'tenant_id', v.tenant_id, 'payload', v.payload)::text as body,
            exists (select from tallyman_webhooks.dispatches d
                     where d.id = $4 and d.event_id = $3 and d.endpoint_id = e.id) as is_recorded
       from tallyman_webhooks.endpoints e
       left join tallyman_events.events v on v.tenant_id = e.tenant_id and v.id = $3
      where e.id = $1 and e.tenant_id = $2`,
    [endpointId, on.tenantId, job.event, job.delivery],
  );
  const row = rows[0];
  if (!row) throw new PermanentError('ENDPOINT_GONE', `webhook endpoint ${endpointId} was removed`);
  // A receiver that answered 410 wants no more. What a person has disabled may be enabled again.
  if (row.disabled_reason !== null && row.disabled_by !== 'person')
    throw endpointDisabled(endpointId, row.disabled_reason);
  if (row.event_type === null || row.body === null)
    throw new PermanentError('EVENT_GONE', `event ${job.event} is no longer kept`);
  // A job is not enough: what is sent, and where to, is what the delivery's record says.
  if (!row.is_recorded)
    throw new PermanentError(
      'DELIVERY_GONE',
      `there is no delivery ${job.delivery} of event ${job.event} to webhook endpoint ${endpointId}`,
    );
  if (!isEventType(row.event_type))
    throw new PermanentError(
      'BAD_EVENT_TYPE',
      `event ${job.event} cannot be delivered: its type ${JSON.stringify(row.event_type)} is no token, and cannot be a header`,
    );
  return {
    deliveryId: job.delivery,
    eventId: row.event_id,
    eventType: row.event_type,
    endpointId,
    url: row.url,
    timeoutMs: row.timeout_ms,
    retryDelays: row.retry_delays,
    body: Buffer.from(row.body),
    secrets: row.secrets.map(({ sealed, key }) => ({
      text: box.open(sealed, secretContext(endpointId)),
      bpcKey: key,
    })),
    privateKeys: row.sealed_keys.map((sealed) => box.open(sealed, keyContext(endpointId))),
    customHeaders:
      row.headers_sealed === null ? {} : JSON.parse(box.open(row.headers_sealed, headersContext(endpointId))),
    pausedBecause: row.disabled_reason,
    failures: row.failures,
    openMs: row.open_ms,
    isProbed: row.probed,
  };
}

export const endpointDisabled = (endpointId: string, reason: string): PermanentError =>
  new PermanentError('ENDPOINT_DISABLED', `webhook endpoint ${endpointId} is disabled: ${reason}`);
