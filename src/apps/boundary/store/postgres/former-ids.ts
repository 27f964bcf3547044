/** Ids that facts had before a restore of their zone, and the facts are here under other ids. All statements rely on former_ids_pkey. */
import type { Queryable } from '../../../../engine/database/database.ts';
import type { StreamId } from '../store.ts';

export interface FormerId {
  readonly id: string;
  /** Of the content. */
  readonly digest: string;
}

type Source = Pick<StreamId, 'tenantId' | 'from'>;

export async function addFormerIds(
  tx: Queryable,
  { tenantId, from }: Source,
  ids: readonly FormerId[],
): Promise<void> {
  if (ids.length === 0) return;
  await tx.query(
    `insert into boundary.former_ids (tenant_id, from_zone, message_id, digest)
     select $1, $2, e.id, e.digest from unnest($3::text[], $4::text[]) as e (id, digest)
     on conflict do nothing`,
    [tenantId, from, ids.map(({ id }) => id), ids.map(({ digest }) => digest)],
  );
}

/** Digests by id, of those ids that are known. */
export async function formerDigests(
  on: Queryable,
  { tenantId, from }: Source,
  ids: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  if (ids.length === 0) return new Map();
  const { rows } = await on.query<FormerId>(
    `select message_id as id, digest from boundary.former_ids
      where tenant_id = $1 and from_zone = $2 and message_id = any($3::text[])`,
    [tenantId, from, ids],
  );
  return new Map(rows.map(({ id, digest }) => [id, digest]));
}
