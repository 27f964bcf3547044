/**
 * PostgreSQL arrays in its binary format, which the driver sends for a Buffer. As text, times and hashes of thousands of reads cost the
 * server several times as much, most of it for reading times. Numbers and booleans gain little: see array-literal.ts for those.
 * An array of nothing but nulls is null itself: `unnest` fills it up.
 */
import type { Micros } from '../instant.ts';

/** Of types, as every PostgreSQL has them. */
const oids = { bytea: 17, text: 25, timestamptz: 1184 } as const;

/** PostgreSQL counts times from 2000-01-01. */
const epoch: Micros = Date.UTC(2000, 0, 1) * 1000;
const high = 2 ** 32;

/** A `timestamptz[]`. */
export function timeArray(values: readonly (Micros | null)[]): Buffer | null {
  const nulls = countNulls(values);
  if (nulls > 0 && nulls === values.length) return null;
  const buffer = Buffer.allocUnsafe(headerLength(values.length) + values.length * 12 - nulls * 8);
  let end = writeHeader(buffer, oids.timestamptz, values.length, nulls > 0);
  for (const value of values) {
    if (value === null) {
      end = buffer.writeInt32BE(-1, end);
      continue;
    }
    end = buffer.writeInt32BE(8, end);
    const micros = value - epoch;
    const upper = Math.floor(micros / high);
    end = buffer.writeInt32BE(upper, end);
    end = buffer.writeUInt32BE(micros - upper * high, end);
  }
  return buffer;
}

/** A `bytea[]` of values of one length, in hex. */
export function bytesArray(values: readonly string[]): Buffer {
  const length = (values[0]?.length ?? 0) / 2;
  const prefix = length.toString(16).padStart(8, '0');
  let text = '';
  for (const value of values) text += prefix + value;
  const header = headerLength(values.length);
  const buffer = Buffer.allocUnsafe(header + values.length * (4 + length));
  writeHeader(buffer, oids.bytea, values.length, false);
  // It would stop at what is no hex, and leave the rest as it was in memory.
  if (buffer.write(text, header, 'hex') !== buffer.length - header)
    throw new RangeError('the values are not hex, or differ in length');
  return buffer;
}

/** A `text[]`. Each text that occurs is encoded once. */
export function binaryTextArray(values: readonly (string | null)[]): Buffer | null {
  const encoded = new Map<string | null, string>();
  let text = '';
  for (const value of values) {
    let element = encoded.get(value);
    if (element === undefined) {
      element = encode(value);
      encoded.set(value, element);
    }
    text += element;
  }
  const hasNulls = encoded.has(null);
  if (hasNulls && encoded.size === 1) return null;
  const header = headerLength(values.length);
  const buffer = Buffer.allocUnsafe(header + text.length);
  writeHeader(buffer, oids.text, values.length, hasNulls);
  buffer.write(text, header, 'latin1');
  return buffer;
}

/** An element with its length, each byte as one character. */
function encode(value: string | null): string {
  if (value === null) return lengthOf(-1);
  const length = Buffer.byteLength(value);
  const isAscii = length === value.length;
  return lengthOf(length) + (isAscii ? value : Buffer.from(value).toString('latin1'));
}

const lengthOf = (length: number): string =>
  String.fromCharCode((length >> 24) & 255, (length >> 16) & 255, (length >> 8) & 255, length & 255);

function countNulls(values: readonly unknown[]): number {
  let nulls = 0;
  for (const value of values) if (value === null) nulls += 1;
  return nulls;
}

const headerLength = (count: number): number => (count === 0 ? 12 : 20);

/** An empty array has no dimension. */
function writeHeader(buffer: Buffer, oid: number, count: number, hasNulls: boolean): number {
  buffer.writeInt32BE(count === 0 ? 0 : 1, 0);
  buffer.writeInt32BE(hasNulls ? 1 : 0, 4);
  buffer.writeInt32BE(oid, 8);
  if (count === 0) return 12;
  buffer.writeInt32BE(count, 12);
  return buffer.writeInt32BE(1, 16);
}
