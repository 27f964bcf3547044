import type { Queryable } from '../../../engine/database/database.ts';
import type { FailedRead } from '../tag-read.ts';

/** Which of these failures are already recorded, as `id tenant`. Relies on processings_failed_by_tag_read. */
export async function failedBefore(tx: Queryable, failures: readonly FailedRead[]): Promise<Set<string>> {
  if (failures.length === 0) return new Set();
  const { rows } = await tx.query<{ key: string }>(
    `select p.zb_tag_read_id || ' ' || p.tenant_id as key
       from unnest($1::bigint[], $2::text[]) as w (id, tenant_id)
       join rfid.tag_read_processings p on p.tenant_id = w.tenant_id and p.zb_tag_read_id = w.id
      where p.error_message is not null and p.zb_tag_read_id is not null`,
    [failures.map(({ read }) => read.zbTagReadId), failures.map(({ read }) => read.tenantId)],
  );
  return new Set(rows.map(({ key }) => key));
}
