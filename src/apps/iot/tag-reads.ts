import { plainArray, textArray } from '../../engine/database/array-literal.ts';
import type { Queryable } from '../../engine/database/database.ts';

/** A read as a reader sent it, in a form that the database can store. */
export interface RawTagRead {
  readonly tenantId: string;
  readonly deviceId: string;
  readonly epcHex: string;
  /** UTC with microseconds, as `formatInstant` writes it. */
  readonly eventTimestamp: string;
  readonly antenna: number | null;
  readonly rssi: number | null;
  readonly eventNumber: number | null;
}

/** Appends reads in one statement; returns their ids, in order. Runs in the transaction of `on`, if there is one. */
export async function storeTagReads(on: Queryable, reads: readonly RawTagRead[]): Promise<string[]> {
  if (reads.length === 0) return [];
  const { rows } = await on.query<{ id: string }>(
    `insert into iot.tag_reads (tenant_id, device_id, epc_hex, event_timestamp, antenna, rssi, event_number)
     select r.tenant_id, r.device_id, r.epc_hex, r.event_timestamp, r.antenna, r.rssi, r.event_number
       from unnest($1::text[], $2::text[], $3::text[], $4::timestamptz[], $5::smallint[], $6::real[], $7::bigint[])
            with ordinality as r (tenant_id, device_id, epc_hex, event_timestamp, antenna, rssi, event_number, n)
      order by r.n
     returning id`,
    [
      textArray(reads.map((read) => read.tenantId)),
      textArray(reads.map((read) => read.deviceId)),
      textArray(reads.map((read) => read.epcHex)),
      plainArray(reads.map((read) => read.eventTimestamp)),
      plainArray(reads.map((read) => read.antenna)),
      plainArray(reads.map((read) => read.rssi)),
      plainArray(reads.map((read) => read.eventNumber)),
    ],
  );
  return rows.map(({ id }) => id);
}
