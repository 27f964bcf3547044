/** What left in one-way mode. All statements rely on exports_pkey. */
import type { Queryable } from '../../../../engine/database/database.ts';
import type { ChainedRange } from '../../domain/delivery.ts';
import type { Exported, StreamId } from '../store.ts';
import { keyOf, ofStream } from './stream-key.ts';

/** A range that leaves again keeps the time when it left last. */
export async function noteExported(
  on: Queryable,
  stream: StreamId,
  { epoch, from, to, chain }: ChainedRange & { readonly epoch: string },
): Promise<void> {
  await on.query(
    `insert into boundary.exports (tenant_id, buffer, from_zone, to_zone, epoch, from_offset, to_offset, chain)
     values ($1, $2, $3, $4, $5, $6, $7, $8)
     on conflict (tenant_id, buffer, from_zone, to_zone, to_offset, epoch)
     do update set exported_at = excluded.exported_at`,
    [...keyOf(stream), epoch, from, to, chain],
  );
}

export async function exported(
  on: Queryable,
  stream: StreamId,
  { after, limit }: { readonly after: number; readonly limit: number },
): Promise<Exported[]> {
  const { rows } = await on.query<Exported>(
    `select epoch, from_offset::float8 as "from", to_offset::float8 as "to", chain, exported_at as "exportedAt"
       from boundary.exports
      where ${ofStream} and to_offset > $5
      order by to_offset, epoch limit $6`,
    [...keyOf(stream), after, limit],
  );
  return rows;
}
