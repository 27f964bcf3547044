/** What is kept about crossings: how far a source was followed, and receipts. */
import type { Queryable } from '../../../../engine/database/database.ts';
import type { Frontier } from '../../domain/delivery.ts';
import type { SignedReceipt } from '../../domain/receipt.ts';
import type { BufferRole, StreamId } from '../store.ts';
import { keyOf, ofStream } from './stream-key.ts';

const frontierColumns = `source_epoch as epoch, source_offset::float8 as "offset", source_chain as chain`;

/** Relies on streams_pkey. */
export async function frontier(on: Queryable, stream: StreamId): Promise<Frontier | undefined> {
  const { rows } = await on.query<Frontier>(
    `select ${frontierColumns} from boundary.streams where ${ofStream} and source_epoch is not null`,
    keyOf(stream),
  );
  return rows[0];
}

/** The frontier, locked until the transaction ends: those that move it come one after another. */
export async function lockFrontier(on: Queryable, stream: StreamId): Promise<Frontier | undefined> {
  await on.query(
    `insert into boundary.streams (tenant_id, buffer, from_zone, to_zone) values ($1, $2, $3, $4) on conflict do nothing`,
    keyOf(stream),
  );
  const { rows } = await on.query<Partial<Frontier>>(
    `select ${frontierColumns} from boundary.streams where ${ofStream} for no key update`,
    keyOf(stream),
  );
  const row = rows[0];
  return row?.epoch ? (row as Frontier) : undefined;
}

export async function moveFrontier(on: Queryable, stream: StreamId, to: Frontier): Promise<void> {
  await on.query(
    `update boundary.streams set source_epoch = $5, source_offset = $6, source_chain = $7 where ${ofStream}`,
    [...keyOf(stream), to.epoch, to.offset, to.chain],
  );
}

/** Relies on receipts_pkey. The first receipt of a range stays. */
export async function addReceipt(on: Queryable, buffer: BufferRole, receipt: SignedReceipt): Promise<void> {
  await on.query(
    `insert into boundary.receipts (tenant_id, buffer, from_zone, to_zone, epoch, from_offset, to_offset, chain,
                                    received_at, key_id, signature)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) on conflict do nothing`,
    [
      receipt.tenantId,
      buffer,
      receipt.from,
      receipt.to,
      receipt.epoch,
      receipt.fromOffset,
      receipt.toOffset,
      receipt.chain,
      receipt.receivedAt,
      receipt.keyId,
      Buffer.from(receipt.signature),
    ],
  );
}

/** Relies on receipts_pkey. */
export async function receipts(
  on: Queryable,
  stream: StreamId,
  { after, limit }: { readonly after: number; readonly limit: number },
): Promise<SignedReceipt[]> {
  const { rows } = await on.query<SignedReceipt>(
    `select tenant_id as "tenantId", from_zone as "from", to_zone as "to", epoch, from_offset::float8 as "fromOffset",
            to_offset::float8 as "toOffset", chain, received_at::float8 as "receivedAt", key_id as "keyId", signature
       from boundary.receipts where ${ofStream} and to_offset > $5 order by to_offset, epoch limit $6`,
    [...keyOf(stream), after, limit],
  );
  return rows;
}
