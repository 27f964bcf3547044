/** The database a run starts from: our schemas, doors with locations, and baskets that are there already. */
import { iotComponent } from '../../../src/apps/iot/component.ts';
import { putDevice, putLocation } from '../../../src/apps/iot/places.ts';
import { rfidComponent } from '../../../src/apps/rfid/component.ts';
import { Database } from '../../../src/engine/database/database.ts';
import { engineComponent, migrate } from '../../../src/engine/database/migrate.ts';
import { eventsComponent } from '../../../src/events/component.ts';
import { DOORS, door, tenantId } from './stream.ts';
import type { Size } from './workloads.ts';

export async function openPlant(url: string, size: Size, connections: number): Promise<Database> {
  const database = await Database.connect({ url, poolSize: connections });
  await migrate(database, { components: [engineComponent, eventsComponent, iotComponent, rfidComponent] });
  for (let i = 0; i < DOORS; i += 1) {
    const { id } = await putLocation(database, tenantId, `location ${i}`);
    await putDevice(database, { tenantId, serial: door(i), locationId: id, role: 'dock-door' });
  }
  if (size.preloaded > 0) await preload(database, size.preloaded);
  await database.query('vacuum analyze');
  await database.query('checkpoint');
  await database.warm(connections);
  return database;
}

async function preload(database: Database, baskets: number): Promise<void> {
  await database.query(
    `insert into rfid.baskets (tenant_id, epc_hex, epc_uri, location_id, last_seen_at, first_seen_at, last_device_id)
     select $1, '3314257BF40C0E4' || lpad(upper(to_hex(n)), 9, '0'), 'urn:epc:id:grai:0614141.12345.' || n,
            (select min(id) from iot.locations) + n % $3, '2025-06-01', '2025-06-01', 'door-' || n % $3
       from generate_series(0, $2 - 1) n`,
    [tenantId, baskets, DOORS],
  );
  await database.query(
    `insert into rfid.tag_read_processings
       (tenant_id, content_hash, processor_type, event_timestamp, basket_id, epc_hex, device_id, is_new_basket)
     select tenant_id, sha256(epc_hex::bytea), 'MQTT', last_seen_at, id, epc_hex, last_device_id, true from rfid.baskets`,
  );
}

/** Every distinct read has its row, and nothing else has. */
export async function verify(database: Database, expected: number, size: Size): Promise<void> {
  const { rows } = await database.query<{ n: number; failed: number }>(
    'select count(*)::int as n, count(error_message)::int as failed from rfid.tag_read_processings',
  );
  const counted = (rows[0]?.n ?? 0) - size.preloaded;
  if (counted !== expected || rows[0]?.failed !== 0)
    throw new Error(`${counted} reads were counted, ${expected} were sent; ${rows[0]?.failed} failed`);
}
