/** What doors of a plant send, the same for every system: a basket passes a door and is read four times; one read in twenty comes twice. */
import type { TagRead } from '../../../src/apps/rfid/tag-read.ts';
import type { Size } from './workloads.ts';

export const DOORS = 20;
export const door = (number: number) => `door-${number}`;
export const tenantId = 'default';
export const epcOf = (basket: number) =>
  `3314257BF40C0E4${basket.toString(16).toUpperCase().padStart(9, '0')}`;

const READS_A_PASS = 4;
const DUPLICATE_EVERY = 20;
const start = Date.UTC(2026, 0, 1);

/** Reads `from` to `to` of the stream. */
export function readsOf(size: Size, from: number, to: number): TagRead[] {
  return Array.from({ length: to - from }, (_, offset) => {
    const slot = from + offset;
    const place = isDuplicate(slot) ? slot - 1 : slot;
    return readAt(size, size.late ? placeOfLate(size, place) : place);
  });
}

/** A late read is handed in this many blocks after its own. */
const LATE_BY = 500;

/** One place in each block of twenty is filled with the read that belongs to that place of an earlier block. */
function placeOfLate({ reads }: Size, place: number): number {
  const blocks = Math.floor(reads / DUPLICATE_EVERY);
  const block = Math.floor(place / DUPLICATE_EVERY);
  if (block >= blocks || place % DUPLICATE_EVERY !== lateIn(block)) return place;
  // The first blocks get what would come after the end.
  const own = (block - LATE_BY + blocks) % blocks;
  return own * DUPLICATE_EVERY + lateIn(own);
}

/** Another read of a pass each time; never one that comes twice. */
const lateIn = (block: number): number => (block * 5) % (DUPLICATE_EVERY - 2);

const isDuplicate = (place: number) => place % DUPLICATE_EVERY === DUPLICATE_EVERY - 1;

export const distinctReads = ({ reads }: Size): number =>
  reads -
  Array.from({ length: DUPLICATE_EVERY }, (_, i) => i).filter(isDuplicate).length *
    Math.floor(reads / DUPLICATE_EVERY);

function readAt({ baskets }: Size, place: number): TagRead {
  // Passes of several doors interleave, as the reads of a plant do.
  const pass = Math.floor(place / (READS_A_PASS * DOORS)) * DOORS + (place % DOORS);
  const basket = scatter(pass) % baskets;
  // A read every 200 µs of the plant's time.
  const micros = place * 200 + 17;
  const seconds = Math.floor(micros / 1_000_000);
  const timestamp = new Date(start + seconds * 1000).toISOString().slice(0, 19);
  return {
    epc: epcOf(basket),
    deviceId: door(scatter(pass + 7) % DOORS),
    eventTimestamp: `${timestamp}.${String(micros % 1_000_000).padStart(6, '0')}Z`,
    processorType: 'MQTT',
    tenantId,
  };
}

/** A number that looks random and is the same in every run. */
function scatter(n: number): number {
  let x = Math.imul(n ^ 0x9e3779b9, 0x85ebca6b);
  x ^= x >>> 13;
  x = Math.imul(x, 0xc2b2ae35);
  return (x ^ (x >>> 16)) >>> 0;
}
