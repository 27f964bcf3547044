import { bytesToHex, hexToBytes } from './hash.ts';
import type { Hash, QrContent } from './types.ts';

/*
 * The text of the document code (BPC-10): BPC1|pv=<uuid>|ph=<b32>|pr=<b32>|rh=<b32>, always 212 characters. Base 32 is that
 * of RFC 4648 without padding; a SHA-256 has 52 characters, the last of which carries one bit.
 */

const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZ234567';
const uuid = '[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}';
const shape = new RegExp(`^BPC1\\|pv=(${uuid})\\|ph=([A-Z2-7]{52})\\|pr=([A-Z2-7]{52})\\|rh=([A-Z2-7]{52})$`);
export const isUuid = (text: unknown): text is string =>
  typeof text === 'string' && new RegExp(`^${uuid}$`).test(text);

export function formatQr({ passportVersion, payloadHash, proofHash, receiptHash }: QrContent): string {
  const text = `BPC1|pv=${passportVersion}|ph=${base32(payloadHash)}|pr=${base32(proofHash)}|rh=${base32(receiptHash)}`;
  if (!shape.test(text)) throw new Error(`formatQr: ${passportVersion} is no UUID, or a hash is no SHA-256`);
  return text;
}

/** Undefined if it is no such text, or not the one text for its values. */
export function parseQr(text: string): QrContent | undefined {
  const [, passportVersion, payload = '', proof = '', receipt = ''] = shape.exec(text) ?? [];
  const [payloadHash, proofHash, receiptHash] = [payload, proof, receipt].map(fromBase32);
  if (!passportVersion || !payloadHash || !proofHash || !receiptHash) return undefined;
  return { passportVersion, payloadHash, proofHash, receiptHash };
}

function base32(hash: Hash): string {
  let text = '';
  let [bits, count] = [0, 0];
  for (const byte of hexToBytes(hash) ?? []) {
    bits = ((bits << 8) | byte) & 0xfff;
    count += 8;
    for (; count >= 5; count -= 5) text += alphabet[(bits >> (count - 5)) & 31];
  }
  return count === 0 ? text : text + alphabet[(bits << (5 - count)) & 31];
}

/** Undefined if the bits that are left over at the end are not zero: two texts would give one hash. */
function fromBase32(text: string): Hash | undefined {
  const bytes: number[] = [];
  let [bits, count] = [0, 0];
  for (const character of text) {
    bits = ((bits << 5) | alphabet.indexOf(character)) & 0xfff;
    count += 5;
    if (count < 8) continue;
    count -= 8;
    bytes.push((bits >> count) & 0xff);
  }
  return (bits & ((1 << count) - 1)) === 0 ? bytesToHex(Uint8Array.from(bytes)) : undefined;
}
