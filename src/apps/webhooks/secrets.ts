import type { Queryable } from '../../engine/database/database.ts';
import { requireWhole } from '../../engine/validate.ts';
import type { SecretBox } from '../../secrets/box.ts';
import { newSecret } from './delivery/sign.ts';
import { noEndpoint } from './not-found.ts';
import type { Store } from './store.ts';

/** A secret sealed for one endpoint opens for no other. */
export const secretContext = (endpointId: string): string => `webhook-endpoint:${endpointId}`;

export interface RotateOptions {
  /** How long deliveries are signed with the old secret, too. Default 24 hours; 0 ends it at once. */
  readonly keepOldForMs?: number;
}

/** Creates a secret and stores it sealed. The return value is the only time that it is visible. */
export async function addSecret(
  on: Queryable,
  box: SecretBox,
  endpoint: { readonly id: string; readonly tenantId: string },
): Promise<string> {
  const secret = newSecret();
  await on.query(
    'insert into tallyman_webhooks.endpoint_secrets (endpoint_id, tenant_id, sealed) values ($1, $2, $3)',
    [endpoint.id, endpoint.tenantId, box.seal(secret, secretContext(endpoint.id))],
  );
  return secret;
}

/** Adds a new secret; earlier ones stay valid for a time, so that you can change the receiver without losing a delivery. */
export async function rotateSecret(
  store: Store,
  box: SecretBox,
  id: string,
  { keepOldForMs = 24 * 3_600_000 }: RotateOptions,
): Promise<string> {
  requireWhole(keepOldForMs, 'keepOldForMs', 0, 365 * 24 * 3_600_000);
  return store.transaction(async (tx) => {
    // The lock makes two rotations run one after the other: the second one expires the first one's secret.
    const { rows } = await tx.query<{ tenantId: string }>(
      'select tenant_id as "tenantId" from tallyman_webhooks.endpoints where id = $1 for update',
      [id],
    );
    const [endpoint] = rows;
    if (!endpoint) throw noEndpoint(id);
    await tx.query(
      `update tallyman_webhooks.endpoint_secrets
          set expires_at = least(expires_at, now() + $2 * interval '1 millisecond') where endpoint_id = $1`,
      [id, keepOldForMs],
    );
    await tx.query(
      'delete from tallyman_webhooks.endpoint_secrets where endpoint_id = $1 and expires_at <= now()',
      [id],
    );
    return addSecret(tx, box, { id, tenantId: endpoint.tenantId });
  });
}
