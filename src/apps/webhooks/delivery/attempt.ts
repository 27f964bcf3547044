import type { Queryable } from '../../../engine/database/database.ts';
import type { Exchange } from './exchange.ts';

/** Records an attempt; a successful one ends the delivery. Records nothing for a removed endpoint. */
export async function saveAttempt(
  on: Queryable,
  deliveryId: string,
  { httpStatus, headers, body, durationMs, startedAt }: Exchange,
  problem: { readonly code: string; readonly message: string } | undefined,
): Promise<void> {
  await on.query(
    `with delivery as (
       update tallyman_webhooks.dispatches d
          set succeeded_at = case when $2 = 'SUCCEEDED' then now() else d.succeeded_at end
        where d.id = $1
       returning d.*
     )
     insert into tallyman_webhooks.webhook_deliveries
       (tenant_id, delivery_id, event_id, endpoint_id, attempt, status, http_status, response_headers, response_body,
        error_code, error, duration_ms, attempted_at)
     select d.tenant_id, d.id, d.event_id, d.endpoint_id,
            (select count(*) + 1 from tallyman_webhooks.webhook_deliveries w where w.delivery_id = d.id),
            $2, $3, $4, $5, $6, $7, $8, $9
       from delivery d`,
    [
      deliveryId,
      problem ? 'FAILED' : 'SUCCEEDED',
      httpStatus,
      headers && JSON.stringify(headers),
      body,
      problem?.code ?? null,
      problem?.message ?? null,
      durationMs,
      startedAt,
    ],
  );
}
