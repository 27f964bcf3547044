/**
 * The service that is usually written: look whether the read is known, lock or make the basket, compare, write, commit;
 * one read at a time on each connection. It uses our tables and our decoder, and keeps devices in memory as we do.
 */
import type pg from 'pg';
import { contentHash } from '../../../../src/apps/rfid/content-hash.ts';
import { decodeEpc } from '../../../../src/apps/rfid/epc.ts';
import { type Device, deviceKey, loadDevices } from '../../../../src/apps/rfid/reference/devices.ts';
import type { TagRead } from '../../../../src/apps/rfid/tag-read.ts';
import { readsOf } from '../stream.ts';
import type { System } from './system.ts';

export const handWritten = (connections: number): System => ({
  connections,
  async run(database, size, halfway) {
    const devices = await loadDevices(database);
    let next = 0;
    const worker = async () => {
      while (next < size.reads) {
        const place = next++;
        if (place === Math.floor(size.reads / 2)) halfway();
        const [read] = readsOf(size, place, place + 1);
        if (read) await database.transaction((tx) => processRead(tx, read, devices));
      }
    };
    await Promise.all(Array.from({ length: connections }, worker));
  },
});

interface Basket {
  readonly id: string;
  readonly location_id: string | null;
  readonly is_older: boolean;
}

async function processRead(
  tx: pg.PoolClient,
  read: TagRead,
  devices: ReadonlyMap<string, Device>,
): Promise<void> {
  const { hex, uri } = decodeEpc(read.epc);
  const { tenantId, deviceId, eventTimestamp } = read;
  const location = devices.get(deviceKey(tenantId, deviceId))?.locationId;
  const hash = Buffer.from(contentHash({ deviceId, epcHex: hex, timestamp: eventTimestamp }), 'hex');
  const known = await tx.query(
    'select 1 from rfid.tag_read_processings where tenant_id = $1 and content_hash = $2 and error_message is null',
    [tenantId, hash],
  );
  if (known.rows.length > 0) return;
  await tx.query(
    `insert into rfid.baskets (tenant_id, epc_hex, epc_uri) values ($1, $2, $3) on conflict do nothing`,
    [tenantId, hex, uri],
  );
  const { rows } = await tx.query<Basket>(
    `select id, location_id, last_seen_at is null or last_seen_at <= $3 as is_older
       from rfid.baskets where tenant_id = $1 and epc_hex = $2 for update`,
    [tenantId, hex, eventTimestamp],
  );
  const basket = rows[0] as Basket;
  let movement: string | null = null;
  if (basket.is_older && basket.location_id !== location) {
    const moved = await tx.query<{ id: string }>(
      `insert into rfid.movements
         (basket_id, from_location_id, to_location_id, event_timestamp, window_start, device_id, tenant_id)
       values ($1, $2, $3, $4, date_bin('5 minutes', $4, 'epoch'), $5, $6) on conflict do nothing returning id`,
      [basket.id, basket.location_id, location, eventTimestamp, deviceId, tenantId],
    );
    movement = moved.rows[0]?.id ?? null;
  }
  if (basket.is_older)
    await tx.query(
      'update rfid.baskets set location_id = $2, last_seen_at = $3, last_device_id = $4 where id = $1',
      [basket.id, location, eventTimestamp, deviceId],
    );
  await tx.query(
    `insert into rfid.tag_read_processings
       (tenant_id, content_hash, processor_type, event_timestamp, basket_id, movement_id, epc_hex, device_id)
     values ($1, $2, 'MQTT', $3, $4, $5, $6, $7) on conflict do nothing`,
    [tenantId, hash, eventTimestamp, basket.id, movement, hex, deviceId],
  );
}
