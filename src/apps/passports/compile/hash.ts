import { sha256 as portable } from '@noble/hashes/sha2.js';
import type { Hash } from './types.ts';

type Sha256 = (bytes: Uint8Array) => Uint8Array;

let implementation: Sha256 = portable;

export const utf8 = (text: string): Uint8Array => encoder.encode(text);
const encoder = new TextEncoder();

/**
 * Replaces the portable SHA-256 by that of the platform: a worker that compiles many passports passes Node's. It must be
 * the same function: one that answers wrongly for a known text is refused.
 */
export function setSha256(faster: Sha256): void {
  const probe = utf8('{"a":1,"b":2}');
  if (bytesToHex(faster(probe)) !== bytesToHex(portable(probe)))
    throw new Error('setSha256: this function does not compute SHA-256');
  implementation = faster;
}

export const sha256 = (bytes: Uint8Array): Uint8Array => implementation(bytes);

export const sha256Hex = (bytes: Uint8Array): Hash => bytesToHex(implementation(bytes));

const hexOf = Array.from({ length: 256 }, (_, byte) => byte.toString(16).padStart(2, '0'));

export function bytesToHex(bytes: Uint8Array): string {
  let hex = '';
  for (const byte of bytes) hex += hexOf[byte];
  return hex;
}

/** Undefined for anything but lower-case hex digits in pairs: one value has one spelling. */
export function hexToBytes(hex: string): Uint8Array | undefined {
  if (hex.length % 2 !== 0 || !/^[0-9a-f]*$/.test(hex)) return undefined;
  return Uint8Array.from({ length: hex.length / 2 }, (_, at) =>
    Number.parseInt(hex.slice(2 * at, 2 * at + 2), 16),
  );
}

export const isHash = (text: unknown): text is Hash =>
  typeof text === 'string' && /^[0-9a-f]{64}$/.test(text);

/** A key for one purpose, from a secret: nobody gets from one key to another, or back to the secret. */
export const deriveKey = (secret: Uint8Array, label: string): Uint8Array =>
  hmacSha256(secret, utf8(`bpc-key-1|${label}`));

const blockBytes = 64;

/** RFC 2104 over the SHA-256 in use. Keys here are 32 bytes; a longer one than a block would have to be hashed first. */
export function hmacSha256(key: Uint8Array, message: Uint8Array): Uint8Array {
  if (key.length > blockBytes) throw new Error('hmacSha256: the key is longer than 64 bytes');
  const padded = (byte: number): Uint8Array =>
    Uint8Array.from({ length: blockBytes }, (_, at) => (key[at] ?? 0) ^ byte);
  return sha256(concat(padded(0x5c), sha256(concat(padded(0x36), message))));
}

export function concat(first: Uint8Array, second: Uint8Array): Uint8Array {
  const all = new Uint8Array(first.length + second.length);
  all.set(first);
  all.set(second, first.length);
  return all;
}
