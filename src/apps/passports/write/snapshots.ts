import { DeadLetters } from '../../../engine/deadletters/dead-letters.ts';
import { appendAudit } from '../audit/append.ts';
import { canonical } from '../compile/canonical.ts';
import { notFound, passportError } from '../errors.ts';
import { buildSnapshotJob, type Issue } from '../jobs/kinds.ts';
import { requireProduct } from '../store/products.ts';
import { deadBuildsOf, requireSnapshot } from '../store/snapshots.ts';
import type { Work } from '../work.ts';

/** Enqueues BUILD_SNAPSHOT over the validated documents of a product. Returns the id that the snapshot will have. */
export async function requestSnapshot(work: Work, productId: string, next?: Issue): Promise<string> {
  const { on, fresh } = work;
  await requireProduct(on, productId);
  const { rows } = await on.query<{ n: number }>(
    'select count(*)::int as n from passports.snapshots s where s.tenant_id = $1 and s.product_id = $2',
    [on.tenantId, productId],
  );
  const snapshotId = fresh.id(`snapshot|${productId}|${(rows[0]?.n ?? 0) + 1}`);
  const issue = next ? canonical(next) : null;
  await on.query(
    `insert into passports.snapshots (id, tenant_id, product_id, next) values ($1, $2, $3, $4)`,
    [snapshotId, on.tenantId, productId, issue],
  );
  await appendAudit(on, [
    {
      aggregate: ['snapshot', snapshotId],
      type: 'snapshot.requested',
      data: { next: issue, product: productId },
    },
  ]);
  await work.enqueue(buildSnapshotJob, { productId, snapshotId, ...(next && { next }) });
  return snapshotId;
}

/**
 * Builds a snapshot again whose build has failed, from the documents that are validated now, and issues from it what was
 * asked for the first time. A dead letter of its build is replaced by the new job.
 */
export async function rebuildSnapshot(work: Work, snapshotId: string): Promise<void> {
  const { on } = work;
  // Locked: of two requests at once one enqueues a job.
  const { rows } = await on.query<{ productId: string; next: string | null }>(
    `select s.product_id as "productId", s.next from passports.snapshots s
      where s.tenant_id = $1 and s.id = $2 for no key update`,
    [on.tenantId, snapshotId],
  );
  const [row] = rows;
  if (!row) throw notFound('snapshot', snapshotId);
  const { state } = await requireSnapshot(on, snapshotId);
  if (state === 'SEALED')
    throw passportError('SNAPSHOT_SEALED', `snapshot ${snapshotId} is built and sealed: build a new one`);
  if (state !== 'FAILED')
    throw passportError(
      'CONFLICT',
      `snapshot ${snapshotId} is being built: wait until it is SEALED or FAILED`,
    );
  await on.query('update passports.snapshots s set error = null where s.tenant_id = $1 and s.id = $2', [
    on.tenantId,
    snapshotId,
  ]);
  await appendAudit(on, [{ aggregate: ['snapshot', snapshotId], type: 'snapshot.rebuilt', data: {} }]);
  await new DeadLetters(on).discard(await deadBuildsOf(on, snapshotId));
  await work.enqueue(buildSnapshotJob, {
    productId: row.productId,
    snapshotId,
    ...(row.next !== null && { next: JSON.parse(row.next) as Issue }),
  });
}
