import type { JsonObject } from '../compile/index.ts';

/** did:web of an origin; the colon before a port is escaped, as the method asks for. */
export const didOf = (origin: string): string => `did:web:${new URL(origin).host.replace(':', '%3A')}`;

/** What `https://host/.well-known/did.json` answers. */
export function didDocument(origin: string, publicKeys: Readonly<Record<string, Uint8Array>>): JsonObject {
  const did = didOf(origin);
  const methods = Object.entries(publicKeys).map(([id, key]) => ({
    id: `${did}#${id}`,
    type: 'Multikey',
    controller: did,
    // 0xed01: an Ed25519 public key, by the table of multicodec.
    publicKeyMultibase: `z${base58(Uint8Array.of(0xed, 0x01, ...key))}`,
  }));
  return {
    '@context': ['https://www.w3.org/ns/did/v1', 'https://w3id.org/security/multikey/v1'],
    id: did,
    verificationMethod: methods,
    assertionMethod: methods.map(({ id }) => id),
  };
}

const alphabet = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz';

/** Base 58 as in Bitcoin; a leading zero byte is a leading 1. */
export function base58(bytes: Uint8Array): string {
  let number = BigInt(`0x0${Buffer.from(bytes).toString('hex')}`);
  let text = '';
  for (; number > 0n; number /= 58n) text = `${alphabet[Number(number % 58n)]}${text}`;
  const zeros = bytes.findIndex((byte) => byte !== 0);
  return '1'.repeat(zeros === -1 ? bytes.length : zeros) + text;
}
