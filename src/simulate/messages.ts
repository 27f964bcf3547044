/**
 * Messages as Zebra FX readers send them: one per read, several in an array, or several with one shared time in
 * `data.tagData`, where a tag that was read twice is listed once, with the count of its reads.
 */
import type { Sighting } from './plant.ts';

export const shapes = ['single', 'array', 'tagData'] as const;
export type Shape = (typeof shapes)[number];

/** What identifies a read: reads with the same three values are the same read. */
export interface SentRead {
  readonly epc: string;
  readonly device: string;
  /** Microseconds since the beginning of the simulation. */
  readonly at: number;
}

export interface Message {
  readonly device: string;
  readonly reads: readonly SentRead[];
  /** The JSON, given when the simulation began, in milliseconds since 1970. */
  readonly payload: (beganAt: number) => string;
}

/** The same shape for the whole life of a reader: it is a setting of its firmware. */
export const shapeOf = (door: number): Shape => shapes[door % shapes.length] as Shape;
export const deviceName = (door: number): string => `dock-${door + 1}`;

export function messageOf(door: number, batch: readonly Sighting[], firstNumber: number): Message {
  const device = deviceName(door);
  const shape = shapeOf(door);
  if (shape === 'tagData') return tagData(device, batch, firstNumber);
  const reads = batch.map(({ epc, at }) => ({ epc, device, at }));
  const items = (beganAt: number) =>
    batch.map((seen, i) => ({
      type: 'SIMPLE',
      timestamp: timestamp(beganAt, seen.at),
      data: {
        eventNum: firstNumber + i,
        format: 'epc',
        idHex: seen.epc.toLowerCase(),
        antenna: seen.antenna,
        peakRssi: seen.rssi,
        reads: 1,
      },
    }));
  return {
    device,
    reads,
    payload: (beganAt) => JSON.stringify(shape === 'single' ? items(beganAt)[0] : items(beganAt)),
  };
}

function tagData(device: string, batch: readonly Sighting[], firstNumber: number): Message {
  const at = Math.max(...batch.map((seen) => seen.at));
  const tags = [...Map.groupBy(batch, (seen) => seen.epc)];
  return {
    device,
    reads: tags.map(([epc]) => ({ epc, device, at })),
    payload: (beganAt) =>
      JSON.stringify({
        type: 'INVENTORY',
        timestamp: timestamp(beganAt, at),
        data: {
          tagData: tags.map(([epc, seen], i) => ({
            eventNum: firstNumber + i,
            format: 'epc',
            idHex: epc,
            antenna: seen[0]?.antenna,
            peakRssi: Math.max(...seen.map(({ rssi }) => rssi)),
            reads: seen.length,
          })),
        },
      }),
  };
}

/** Readers write times differently: here with an offset, and with as many digits as needed. */
function timestamp(beganAt: number, at: number): string {
  const micros = Math.round(beganAt * 1000) + at;
  const seconds = Math.floor(micros / 1_000_000);
  const wall = new Date(seconds * 1000).toISOString().slice(0, 19);
  return `${wall}.${String(micros - seconds * 1_000_000).padStart(6, '0')}+0000`;
}
