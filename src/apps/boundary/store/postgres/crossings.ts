/** What is kept about crossings: how far a source was followed, receipts, quarantine. */
import type { Queryable } from '../../../../engine/database/database.ts';
import type { Frontier } from '../../domain/delivery.ts';
import type { SignedReceipt } from '../../domain/receipt.ts';
import type { BufferRole, QuarantinedEntry, StreamId } from '../store.ts';

const ofStream = 'tenant_id = $1 and buffer = $2 and from_zone = $3 and to_zone = $4';
const keyOf = ({ tenantId, buffer, from, to }: StreamId): string[] => [tenantId, buffer, from, to];

const frontierColumns = `source_epoch as epoch, source_offset::float8 as "offset", source_chain as chain`;

/** Relies on streams_pkey. */
export async function frontier(on: Queryable, stream: StreamId): Promise<Frontier | undefined> {
  const { rows } = await on.query<Frontier>(
    `select ${frontierColumns} from boundary.streams where ${ofStream} and source_epoch is not null`,
    keyOf(stream),
  );
  return rows[0];
}

/** The frontier, locked until the transaction ends: deliveries to one stream come one after another. */
export async function lockFrontier(on: Queryable, stream: StreamId, start: Frontier): Promise<Frontier> {
  await on.query(
    `insert into boundary.streams (tenant_id, buffer, from_zone, to_zone) values ($1, $2, $3, $4) on conflict do nothing`,
    keyOf(stream),
  );
  const { rows } = await on.query<Partial<Frontier>>(
    `select ${frontierColumns} from boundary.streams where ${ofStream} for no key update`,
    keyOf(stream),
  );
  const row = rows[0];
  return row?.epoch ? (row as Frontier) : start;
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

/** Relies on quarantine_pkey. */
export async function addQuarantined(
  on: Queryable,
  tenantId: string,
  entries: readonly QuarantinedEntry[],
): Promise<void> {
  if (entries.length === 0) return;
  await on.query(
    `insert into boundary.quarantine
       (tenant_id, buffer, from_zone, to_zone, epoch, "offset", message_id, reason, message, record, quarantined_at)
     select $1, e.buffer, e.from_zone, e.to_zone, e.epoch, e."offset", e.message_id, e.reason, e.message, e.record, e.at
       from unnest($2::text[], $3::text[], $4::text[], $5::uuid[], $6::bigint[], $7::text[], $8::text[], $9::text[],
                   $10::text[], $11::timestamptz[])
         as e (buffer, from_zone, to_zone, epoch, "offset", message_id, reason, message, record, at)
     on conflict do nothing`,
    [
      tenantId,
      entries.map((entry) => entry.buffer),
      entries.map((entry) => entry.from),
      entries.map((entry) => entry.to),
      entries.map((entry) => entry.epoch),
      entries.map((entry) => entry.offset),
      entries.map((entry) => entry.messageId),
      entries.map((entry) => entry.reason),
      entries.map((entry) => entry.message),
      entries.map((entry) => entry.text),
      entries.map((entry) => entry.quarantinedAt),
    ],
  );
}

/** Relies on quarantine_pkey. */
export async function quarantined(
  on: Queryable,
  stream: StreamId,
  { after, limit }: { readonly after: number; readonly limit: number },
): Promise<QuarantinedEntry[]> {
  const { rows } = await on.query<QuarantinedEntry>(
    `select buffer, from_zone as "from", to_zone as "to", epoch, "offset"::float8 as "offset",
            message_id as "messageId", reason, message, record as text, quarantined_at as "quarantinedAt"
       from boundary.quarantine where ${ofStream} and "offset" > $5 order by "offset", epoch limit $6`,
    [...keyOf(stream), after, limit],
  );
  return rows;
}
