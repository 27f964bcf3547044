import type { Queryable } from '../../engine/database/database.ts';
import { requireWhole } from '../../engine/validate.ts';
import type { SecretBox } from '../../secrets/box.ts';
import { newKeyPair, newSecret, requireSecret } from './delivery/sign.ts';
import { noEndpoint } from './not-found.ts';
import type { Store } from './store.ts';

/** What is sealed for one endpoint opens for no other, and for no other use. */
export const secretContext = (endpointId: string): string => `webhook-endpoint:${endpointId}`;
export const keyContext = (endpointId: string): string => `webhook-endpoint-key:${endpointId}`;
export const headersContext = (endpointId: string): string => `webhook-endpoint-headers:${endpointId}`;

export interface RotateOptions {
  /** How long deliveries are signed with the old secret, too. Default 24 hours; 0 ends it at once. */
  readonly keepOldForMs?: number;
  /** The new secret: 8 to 256 bytes of text. Default: one is made. */
  readonly secret?: string;
}

interface Owner {
  readonly id: string;
  readonly tenantId: string;
}

/** Stores a secret sealed; makes one if none is given. The return value is the only time that it is visible. */
export async function addSecret(
  on: Queryable,
  box: SecretBox,
  { id, tenantId }: Owner,
  secret: string = newSecret(),
): Promise<string> {
  requireSecret(secret);
  await on.query(
    `insert into tallyman_webhooks.endpoint_secrets (endpoint_id, tenant_id, sealed, x_bpc_key)
     values ($1, $2, $3, 'text')`,
    [id, tenantId, box.seal(secret, secretContext(id))],
  );
  return secret;
}

/** Creates a key pair of Ed25519. Returns the public key, which can be read again at any time. */
async function addKey(on: Queryable, box: SecretBox, { id, tenantId }: Owner): Promise<string> {
  const { privateKey, publicKey } = newKeyPair();
  await on.query(
    `insert into tallyman_webhooks.endpoint_keys (endpoint_id, tenant_id, public_key, sealed) values ($1, $2, $3, $4)`,
    [id, tenantId, publicKey, box.seal(privateKey, keyContext(id))],
  );
  return publicKey;
}

/** Makes a key pair if there is none, or forgets all. */
export async function setEd25519(on: Queryable, box: SecretBox, owner: Owner, isOn: boolean): Promise<void> {
  if (!isOn) {
    await on.query('delete from tallyman_webhooks.endpoint_keys where endpoint_id = $1', [owner.id]);
    return;
  }
  const { rows } = await on.query(
    'select 1 from tallyman_webhooks.endpoint_keys where endpoint_id = $1 and expires_at is null',
    [owner.id],
  );
  if (rows.length === 0) await addKey(on, box, owner);
}

/** Adds a new secret; earlier ones stay valid for a time, so that you can change the receiver without losing a delivery. */
export const rotateSecret = (
  store: Store,
  box: SecretBox,
  id: string,
  { secret, ...options }: RotateOptions,
): Promise<string> =>
  rotate(store, 'endpoint_secrets', id, options, (tx, owner) => addSecret(tx, box, owner, secret));

/** The same for the key pair of Ed25519. Returns the new public key. */
export const rotateKey = (
  store: Store,
  box: SecretBox,
  id: string,
  options: Omit<RotateOptions, 'secret'>,
): Promise<string> => rotate(store, 'endpoint_keys', id, options, (tx, owner) => addKey(tx, box, owner));

async function rotate(
  store: Store,
  table: 'endpoint_secrets' | 'endpoint_keys',
  id: string,
  { keepOldForMs = 24 * 3_600_000 }: Pick<RotateOptions, 'keepOldForMs'>,
  add: (tx: Queryable, owner: Owner) => Promise<string>,
): Promise<string> {
  requireWhole(keepOldForMs, 'keepOldForMs', 0, 365 * 24 * 3_600_000);
  return store.transaction(async (tx) => {
    // The lock makes two rotations run one after the other: the second one expires the first one's secret. It leaves room
    // for the fan-out's.
    const { rows } = await tx.query<{ tenantId: string }>(
      'select tenant_id as "tenantId" from tallyman_webhooks.endpoints where id = $1 for no key update',
      [id],
    );
    const [endpoint] = rows;
    if (!endpoint) throw noEndpoint(id);
    await tx.query(
      `update tallyman_webhooks.${table}
          set expires_at = least(expires_at, now() + $2 * interval '1 millisecond') where endpoint_id = $1`,
      [id, keepOldForMs],
    );
    await tx.query(`delete from tallyman_webhooks.${table} where endpoint_id = $1 and expires_at <= now()`, [
      id,
    ]);
    return add(tx, { id, tenantId: endpoint.tenantId });
  });
}
