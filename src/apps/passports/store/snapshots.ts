import type { Page, PageRequest } from '../../../engine/paging.ts';
import type { TenantQueries } from '../../../host/timeline.ts';
import type { Hash } from '../compile/types.ts';
import { notFound } from '../errors.ts';
import { textPage, textPageOf } from './page.ts';

export const snapshotStates = ['BUILDING', 'READY', 'SEALED'] as const;
export type SnapshotState = (typeof snapshotStates)[number];

/** Its facts: `factsOfSnapshot`; its documents: `documentsOfSnapshot`. */
export interface StoredSnapshot {
  readonly id: string;
  readonly productId: string;
  readonly state: SnapshotState;
  readonly hash: Hash | null;
  readonly factCount: number | null;
  readonly createdAt: Date;
  readonly sealedAt: Date | null;
}

const columns = `s.id, s.product_id as "productId", s.state, s.hash, s.fact_count as "factCount", s.created_at as "createdAt",
  s.sealed_at as "sealedAt"`;

export async function requireSnapshot(on: TenantQueries, id: string): Promise<StoredSnapshot> {
  const { rows } = await on.query<StoredSnapshot>(
    `select ${columns} from passports.snapshots s where s.tenant_id = $1 and s.id = $2`,
    [on.tenantId, id],
  );
  if (!rows[0]) throw notFound('snapshot', id);
  return rows[0];
}

/** The sealed snapshot of a product that was built last. */
export async function latestSnapshot(
  on: TenantQueries,
  productId: string,
): Promise<StoredSnapshot | undefined> {
  const { rows } = await on.query<StoredSnapshot>(
    `select ${columns} from passports.snapshots s
      where s.tenant_id = $1 and s.product_id = $2 and s.state = 'SEALED' order by s.sealed_at desc, s.id desc limit 1`,
    [on.tenantId, productId],
  );
  return rows[0];
}

export async function listSnapshots(
  on: TenantQueries,
  filter: { readonly productId?: string } = {},
  page: PageRequest = {},
): Promise<Page<StoredSnapshot>> {
  const { size, fetch, cursor } = textPage(page);
  const { rows } = await on.query<StoredSnapshot>(
    `select ${columns} from passports.snapshots s
      where s.tenant_id = $1 and ($2::text is null or s.product_id = $2) and ($3 = '' or s.id > nullif($3, '')::uuid)
      order by s.id limit $4`,
    [on.tenantId, filter.productId ?? null, cursor, fetch],
  );
  return textPageOf(rows, size, ({ id }) => id);
}
