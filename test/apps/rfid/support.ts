import { iotComponent } from '../../../src/apps/iot/component.ts';
import { putDevice, putLocation } from '../../../src/apps/iot/places.ts';
import { rfidComponent } from '../../../src/apps/rfid/component.ts';
import { TagReadProcessor, type TagReadProcessorOptions } from '../../../src/apps/rfid/process.ts';
import { CachedDevices } from '../../../src/apps/rfid/reference/cached-devices.ts';
import type { TagRead } from '../../../src/apps/rfid/tag-read.ts';
import { eventsComponent } from '../../../src/events/component.ts';
import { type Bundle, engine } from '../../support/engine.ts';

export interface Plant extends Bundle {
  readonly processor: TagReadProcessor;
  readonly devices: CachedDevices;
  /** Location ids by the letter of their one device. */
  readonly at: Readonly<Record<string, string>>;
}

export const tenantId = 'default';

/** Locations A, B, C, … each with a device of the same name, and a processor. */
export async function plant(
  places: readonly string[] = ['A', 'B', 'C'],
  options: Partial<TagReadProcessorOptions> = {},
): Promise<Plant> {
  const bundle = await engine({ components: [eventsComponent, iotComponent, rfidComponent], poolSize: 12 });
  const { database } = bundle.tallyman;
  const at: Record<string, string> = {};
  for (const name of places) {
    const location = await putLocation(database, tenantId, name);
    await putDevice(database, { tenantId, serial: name, locationId: location.id });
    at[name] = location.id;
  }
  const devices = new CachedDevices({ database });
  return { ...bundle, devices, at, processor: new TagReadProcessor({ database, devices, ...options }) };
}

/** GRAI-96 tags of one company, numbered. */
export const tag = (number: number): string =>
  `3314257BF40C0E4${number.toString(16).toUpperCase().padStart(9, '0')}`;

const noon = Date.UTC(2026, 2, 1, 12);

/** `2026-03-01T12:00:00Z` plus so many seconds. */
export const time = (seconds: number): string => {
  const micros = Math.round(seconds * 1_000_000);
  const whole = Math.floor(micros / 1_000_000);
  return `${new Date(noon + whole * 1000).toISOString().slice(0, 19)}.${String(micros - whole * 1_000_000).padStart(6, '0')}Z`;
};

export const read = (deviceId: string, seconds: number, more: Partial<TagRead> = {}): TagRead => ({
  epc: tag(1),
  deviceId,
  eventTimestamp: time(seconds),
  processorType: 'MQTT',
  tenantId,
  ...more,
});

/** `A→B` for each movement of a basket, oldest first. */
export async function movements({ rows, at }: Plant, epc = tag(1)): Promise<string[]> {
  const names = new Map(Object.entries(at).map(([name, id]) => [id, name]));
  const found = await rows<{ from: string | null; to: string }>(
    `select m.from_location_id as "from", m.to_location_id as "to" from rfid.movements m
       join rfid.baskets b on b.id = m.basket_id where b.epc_hex = $1 order by m.event_timestamp, m.id`,
    [epc],
  );
  return found.map(({ from, to }) => `${from === null ? '' : names.get(from)}→${names.get(to)}`);
}
