import { createHash } from 'node:crypto';
import type { Queryable } from '../../engine/database/database.ts';
import type { TenantScope } from '../../engine/database/tenant.ts';
import { TallymanError } from '../../engine/errors.ts';
import type { SecretBox } from '../../secrets/box.ts';
import type { SealedColumn } from '../../secrets/reseal.ts';

export interface Answer {
  readonly status: number;
  readonly body: unknown;
}

export interface KeyedRequest {
  readonly key: string;
  readonly method: string;
  readonly url: string;
  readonly body: unknown;
}

/** How long an answer is kept for a repeated request. */
const keepHours = 24;

/**
 * Runs a write once per key: the same request again gets the first answer, another request with that key is refused. The
 * answer is stored in the transaction of the write. A second request that arrives while the first is running waits for it
 * at the row of its key. A refused write stores nothing, and may be tried again.
 */
export async function once(
  scope: TenantScope,
  request: KeyedRequest,
  box: SecretBox,
  work: () => Promise<Answer>,
): Promise<Answer & { readonly replayed: boolean }> {
  const { key } = request;
  const digest = digestOf(request);
  const { rowCount } = await scope.query(
    `insert into tallyman_server.idempotency_keys (tenant_id, key, digest, status, body)
     values ($1, $2, $3, 0, '') on conflict do nothing`,
    [scope.tenantId, key, digest],
  );
  if (rowCount === 0) return { ...(await earlier(scope, key, digest, box)), replayed: true };
  const answer = await work();
  // Sealed, because an answer may contain a secret that is shown once.
  await scope.query(
    'update tallyman_server.idempotency_keys set status = $3, body = $4 where tenant_id = $1 and key = $2',
    [
      scope.tenantId,
      key,
      answer.status,
      box.seal(JSON.stringify(answer.body ?? null), contextOf({ tenantId: scope.tenantId, key })),
    ],
  );
  return { ...answer, replayed: false };
}

async function earlier(scope: TenantScope, key: string, digest: Buffer, box: SecretBox): Promise<Answer> {
  const { rows } = await scope.query<{ digest: Buffer; status: number; body: string }>(
    'select digest, status, body from tallyman_server.idempotency_keys where tenant_id = $1 and key = $2',
    [scope.tenantId, key],
  );
  const [row] = rows;
  if (!row?.digest.equals(digest)) throw conflict();
  return { status: row.status, body: openAnswer(box, { tenantId: scope.tenantId, key }, row.body) };
}

/** Tells a repeated request from another one with the same key. */
export const digestOf = (request: Pick<KeyedRequest, 'method' | 'url' | 'body'>): Buffer =>
  Buffer.isBuffer(request.body)
    ? createHash('sha256')
        .update(JSON.stringify([request.method, request.url]))
        .update(request.body)
        .digest()
    : createHash('sha256')
        .update(JSON.stringify([request.method, request.url, request.body ?? null]))
        .digest();

export const conflict = (): TallymanError =>
  new TallymanError(
    'IDEMPOTENCY_CONFLICT',
    'this Idempotency-Key was used for another request; take a new key for a new request',
  );

/** Opens the answer that was sealed under a key. */
export const openAnswer = (box: SecretBox, at: KeyOfTenant, sealed: string): unknown =>
  JSON.parse(box.open(sealed, contextOf(at)));

interface KeyOfTenant {
  readonly tenantId: string;
  readonly key: string;
}

const contextOf = ({ tenantId, key }: KeyOfTenant): string => `answer:${tenantId}:${key}`;

/** In batches, so that it holds locks only briefly. Relies on idempotency_keys_by_age. */
export async function forgetAnswers(database: Queryable): Promise<void> {
  for (;;) {
    const { rowCount } = await database.query(
      `delete from tallyman_server.idempotency_keys where (tenant_id, key) in (
         select tenant_id, key from tallyman_server.idempotency_keys
          where created_at < now() - $1 * interval '1 hour' order by created_at limit 1000)`,
      [keepHours],
    );
    if ((rowCount ?? 0) < 1000) return;
  }
}

/** Where answers are kept that may hold a secret. Those of shared commits are plain text. */
export const sealedAnswers: SealedColumn = {
  table: 'tallyman_server.idempotency_keys',
  keys: ['tenant_id', 'key'],
  column: 'body',
  context: ({ tenant_id = '', key = '' }) => contextOf({ tenantId: tenant_id, key }),
};
