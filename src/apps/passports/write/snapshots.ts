import { appendAudit } from '../audit/append.ts';
import { buildSnapshotJob, type Issue } from '../jobs/kinds.ts';
import { requireProduct } from '../store/products.ts';
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
  await on.query(`insert into passports.snapshots (id, tenant_id, product_id) values ($1, $2, $3)`, [
    snapshotId,
    on.tenantId,
    productId,
  ]);
  await appendAudit(on, [
    { aggregate: ['snapshot', snapshotId], type: 'snapshot.requested', data: { product: productId } },
  ]);
  await work.enqueue(buildSnapshotJob, { productId, snapshotId, ...(next && { next }) });
  return snapshotId;
}
