/** What a full stream has dropped before it crossed. All statements rely on drops_pkey. */
import type { Queryable } from '../../../../engine/database/database.ts';
import type { ChainedRange } from '../../domain/delivery.ts';
import type { Dropped, StreamId } from '../store.ts';
import { keyOf, ofStream } from './stream-key.ts';

/** Two processes may note ranges that overlap: a reader takes of each what lies behind the one before. */
export async function addDropped(
  on: Queryable,
  stream: StreamId,
  ranges: readonly (ChainedRange & { readonly epoch: string })[],
): Promise<void> {
  await on.query(
    `insert into boundary.drops (tenant_id, buffer, from_zone, to_zone, epoch, from_offset, to_offset, chain)
     select $1, $2, $3, $4, r.* from unnest($5::uuid[], $6::bigint[], $7::bigint[], $8::text[]) as r
     on conflict do nothing`,
    [
      ...keyOf(stream),
      ranges.map(({ epoch }) => epoch),
      ranges.map(({ from }) => from),
      ranges.map(({ to }) => to),
      ranges.map(({ chain }) => chain),
    ],
  );
}

export async function dropped(
  on: Queryable,
  stream: StreamId,
  { after, limit }: { readonly after: number; readonly limit: number },
): Promise<Dropped[]> {
  const { rows } = await on.query<Dropped>(
    `select epoch, from_offset::float8 as "from", to_offset::float8 as "to", chain, dropped_at as "droppedAt"
       from boundary.drops
      where ${ofStream} and to_offset > $5
      order by to_offset, epoch limit $6`,
    [...keyOf(stream), after, limit],
  );
  return rows;
}
