/**
 * EPC tags of 96 bits as their URIs, after GS1's Tag Data Standard: header, filter, partition, company prefix, and what
 * the company numbers. The partition says how many bits, and how many decimal digits, the prefix takes of what they share.
 */
import { TallymanError } from '../../engine/errors.ts';

export interface Epc {
  /** 24 digits, upper case. */
  readonly hex: string;
  /** The pure identity, such as `urn:epc:id:grai:0614141.12345.400`. */
  readonly uri: string;
}

interface Scheme {
  readonly name: string;
  /** Bits of the part after the company prefix, by partition. */
  readonly bits: readonly number[];
  /** Its decimal digits, zeros in front included; null: as many as it has, without zeros in front. */
  readonly digits: readonly number[] | null;
  /** Bits at the end: a serial number that is a part of the URI, or nothing but zeros. */
  readonly tail: { readonly bits: number; readonly serial: boolean };
}

/** By partition, the same in all schemes. */
const companyBits = [40, 37, 34, 30, 27, 24, 20];
const companyDigits = [12, 11, 10, 9, 8, 7, 6];

const schemes = new Map<number, Scheme>([
  [
    0x30,
    {
      name: 'sgtin',
      bits: [4, 7, 10, 14, 17, 20, 24],
      digits: [1, 2, 3, 4, 5, 6, 7],
      tail: { bits: 38, serial: true },
    },
  ],
  [
    0x31,
    {
      name: 'sscc',
      bits: [18, 21, 24, 28, 31, 34, 38],
      digits: [5, 6, 7, 8, 9, 10, 11],
      tail: { bits: 24, serial: false },
    },
  ],
  [
    0x33,
    {
      name: 'grai',
      bits: [4, 7, 10, 14, 17, 20, 24],
      digits: [0, 1, 2, 3, 4, 5, 6],
      tail: { bits: 38, serial: true },
    },
  ],
  [
    0x34,
    { name: 'giai', bits: [42, 45, 48, 52, 55, 58, 62], digits: null, tail: { bits: 0, serial: false } },
  ],
]);

/** The one spelling of a tag's hex digits. */
export const canonicalEpc = (text: string): string => text.trim().toUpperCase();

/** A tag at a door is read again and again. */
const decoded = new Map<string, Epc>();
const mostDecoded = 20_000;

/** Throws `BAD_EPC` for whatever is not a tag of a scheme we know, whole and in range. */
export function decodeEpc(text: string): Epc {
  const known = decoded.get(text);
  if (known) return known;
  const epc = decode(text);
  if (decoded.size >= mostDecoded) decoded.clear();
  decoded.set(text, epc);
  return epc;
}

/** Longer than any tag's memory for its EPC (496 bits). */
const longestRaw = 128;

/** The same, but a tag of no scheme that we know is kept by its digits, under GS1's name for such tags. */
export function decodeRaw(text: string): Epc {
  try {
    return decodeEpc(text);
  } catch {
    const hex = canonicalEpc(text);
    if (!/^[0-9A-F]+$/.test(hex)) throw bad(hex, 'it has characters that are not hexadecimal');
    if (hex.length > longestRaw)
      throw bad(hex, `it has ${hex.length} hex digits; tags have at most ${longestRaw}`);
    return { hex, uri: `urn:epc:raw:${hex.length * 4}.x${hex}` };
  }
}

function decode(text: string): Epc {
  const hex = canonicalEpc(text);
  if (!/^[0-9A-F]*$/.test(hex)) throw bad(hex, 'it has characters that are not hexadecimal');
  if (hex.length !== 24) throw bad(hex, `it has ${hex.length} hex digits; tags of 96 bits have 24`);
  const header = Number.parseInt(hex.slice(0, 2), 16);
  const scheme = schemes.get(header);
  if (!scheme)
    throw bad(
      hex,
      `its header ${hex.slice(0, 2)} is none of 30 (SGTIN-96), 31 (SSCC-96), 33 (GRAI-96), 34 (GIAI-96)`,
    );
  const partition = (Number.parseInt(hex.slice(2, 4), 16) >> 2) & 7;
  const prefixBits = companyBits[partition];
  const prefixDigits = companyDigits[partition];
  const bits = scheme.bits[partition];
  if (prefixBits === undefined || prefixDigits === undefined || bits === undefined)
    throw bad(hex, `its partition is ${partition}; there are 0 to 6`);

  const value = BigInt(`0x${hex}`);
  const { tail } = scheme;
  const company = field(value, tail.bits + bits, prefixBits).toString();
  const item = field(value, tail.bits, bits).toString();
  const rest = field(value, 0, tail.bits);
  if (company.length > prefixDigits)
    throw bad(hex, `its company prefix ${company} has more than the ${prefixDigits} digits of its partition`);
  const parts = [company.padStart(prefixDigits, '0'), padded(hex, item, scheme.digits?.[partition])];
  if (tail.serial) parts.push(rest.toString());
  else if (rest !== 0n) throw bad(hex, `its last ${tail.bits} bits are reserved and must be zero`);
  return { hex, uri: `urn:epc:id:${scheme.name}:${parts.join('.')}` };
}

const field = (value: bigint, shift: number, bits: number): bigint =>
  BigInt.asUintN(bits, value >> BigInt(shift));

function padded(hex: string, item: string, digits: number | undefined): string {
  if (digits === undefined) return item;
  // With no digits there is no number, and what stands in its bits has to be zero.
  const text = digits === 0 && item === '0' ? '' : item;
  if (text.length > digits)
    throw bad(hex, `its reference ${item} has more than the ${digits} digits of its partition`);
  return text.padStart(digits, '0');
}

const bad = (hex: string, why: string): TallymanError =>
  new TallymanError('BAD_EPC', `EPC "${hex.length > 64 ? `${hex.slice(0, 64)}…` : hex}" is refused: ${why}`);
