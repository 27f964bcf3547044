import type { Queryable } from '../../engine/database/database.ts';
import { emit } from '../../events/emit.ts';
import { disabledType } from './event-types.ts';

export interface Disabling {
  /** `receiver`: it answered 410; its deliveries end. `person`: they wait until somebody enables it. */
  readonly by: 'person' | 'receiver';
  readonly reason: string;
}

/** Says so in an event, in the same transaction. Does nothing if the endpoint is disabled already. */
export async function disableEndpoint(tx: Queryable, id: string, { by, reason }: Disabling): Promise<void> {
  const { rows } = await tx.query<{ tenantId: string; url: string; description: string }>(
    `update tallyman_webhooks.endpoints set disabled_at = now(), disabled_reason = $2, disabled_by = $3
      where id = $1 and disabled_at is null
     returning tenant_id as "tenantId", url, description`,
    [id, reason, by],
  );
  const [endpoint] = rows;
  if (!endpoint) return;
  const { tenantId, url, description } = endpoint;
  await emit(tx, {
    type: disabledType.type,
    aggregateType: disabledType.aggregateType,
    aggregateId: id,
    // Not the whole address: its path or query may be a credential, and other receivers get this.
    payload: { id, host: new URL(url).host, description, by, reason },
    tenantId,
  });
}
