import { createHash } from 'node:crypto';
import type { Queryable } from '../../engine/database/database.ts';
import type { TenantScope } from '../../engine/database/tenant.ts';
import { TallymanError } from '../../engine/errors.ts';
import type { SecretBox } from '../../secrets/box.ts';

export interface Answer {
  readonly status: number;
  readonly body: unknown;
}

/** How long an answer is kept for a repeated request. */
export const keepHours = 24;

/**
 * Runs a write once per key: the same request again gets the first answer, another request with that key is refused. The
 * answer is stored in the transaction of the write. A second request that arrives while the first is running waits for it
 * at the row of its key. A refused write stores nothing, and may be tried again.
 */
export async function once(
  scope: TenantScope,
  request: { readonly key: string; readonly method: string; readonly url: string; readonly body: unknown },
  box: SecretBox,
  work: () => Promise<Answer>,
): Promise<Answer & { readonly replayed: boolean }> {
  const { key } = request;
  const digest = createHash('sha256')
    .update(JSON.stringify([request.method, request.url, request.body ?? null]))
    .digest();
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
      box.seal(JSON.stringify(answer.body ?? null), contextOf(scope, key)),
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
  if (!row?.digest.equals(digest))
    throw new TallymanError(
      'IDEMPOTENCY_CONFLICT',
      'this Idempotency-Key was used for another request; take a new key for a new request',
    );
  return { status: row.status, body: JSON.parse(box.open(row.body, contextOf(scope, key))) };
}

const contextOf = (scope: TenantScope, key: string): string => `answer:${scope.tenantId}:${key}`;

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
