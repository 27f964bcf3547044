import { hashes, verify } from '@noble/ed25519';
import { sha512 } from '@noble/hashes/sha2.js';

hashes.sha512 = sha512;

/** Strict as in RFC 8032: one signature for one key and message. Anything malformed is simply no signature. */
export function verifySignature(message: Uint8Array, signature: Uint8Array, publicKey: Uint8Array): boolean {
  if (signature.length !== 64 || publicKey.length !== 32) return false;
  try {
    return verify(signature, message, publicKey, { zip215: false });
  } catch {
    return false;
  }
}
