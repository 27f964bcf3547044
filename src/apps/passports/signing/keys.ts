import { createPrivateKey, createPublicKey, type KeyObject, sign, verify } from 'node:crypto';
import { TallymanError } from '../../../engine/errors.ts';
import type { PassportsConfig } from '../config.ts';
import { passportError } from '../errors.ts';

/** The key that signs, and every public key whose signatures count. */
export interface KeyRing {
  /** Of the key that signs; undefined without one. */
  readonly currentId: string | undefined;
  /** Raw 32-byte public keys by id, the current one included. */
  readonly publicKeys: Readonly<Record<string, Uint8Array>>;
  /** Ed25519, deterministic. Throws SIGNING_KEY_MISSING for a key that is not here. */
  sign(keyId: string, message: Uint8Array): Uint8Array;
}

type KeySettings = Pick<
  PassportsConfig,
  'passports.signingKey' | 'passports.signingKeyId' | 'passports.publicKeys'
>;

/** PKCS#8 of an Ed25519 key is this prefix and the 32 bytes of the seed (RFC 8410). */
const pkcs8Prefix = Buffer.from('302e020100300506032b657004220420', 'hex');

export function keyRing(config: KeySettings): KeyRing {
  const [secret, id] = [config['passports.signingKey'], config['passports.signingKeyId']];
  if ((secret === null) !== (id === null))
    throw badKey('passports.signingKey and passports.signingKeyId belong together: set both, or none');
  const known = publicKeysIn(config['passports.publicKeys'] ?? '');
  if (secret === null || id === null) return ringOf(undefined, known);
  const privateKey = privateKeyIn(secret);
  const publicKey = rawPublicKey(privateKey);
  const before = known[id];
  if (before && !Buffer.from(before).equals(publicKey))
    throw badKey(`passports.publicKeys has another key of the id "${id}": give the new key a new id`);
  return ringOf({ id, privateKey }, { ...known, [id]: publicKey });
}

function ringOf(
  current: { readonly id: string; readonly privateKey: KeyObject } | undefined,
  publicKeys: KeyRing['publicKeys'],
): KeyRing {
  return {
    currentId: current?.id,
    publicKeys,
    sign: (keyId, message) => {
      if (current?.id === keyId) return sign(null, message, current.privateKey);
      throw passportError(
        'SIGNING_KEY_MISSING',
        current
          ? `this process signs with "${current.id}" and does not know the key "${keyId}". If "${keyId}" was rotated away, add its ` +
              `public key to BPC_PUBLIC_KEYS: the version is then signed with "${current.id}". If "${keyId}" is newer, start this ` +
              'process with it. Then run the job again: tallyman jobs retry'
          : `this process has no private key "${keyId}": set BPC_SIGNING_ED25519_PRIVATE_KEY_BASE64 and BPC_SIGNING_KEY_ID, ` +
              'then run the job again: tallyman jobs retry',
        { keyId },
      );
    },
  };
}

/** The id of the key to sign with, for those who fix it in a new version. */
export function requireCurrentKey(keys: KeyRing): string {
  if (keys.currentId !== undefined) return keys.currentId;
  throw passportError(
    'SIGNING_KEY_MISSING',
    'there is no signing key: set BPC_SIGNING_ED25519_PRIVATE_KEY_BASE64 and BPC_SIGNING_KEY_ID',
  );
}

function privateKeyIn(base64: string): KeyObject {
  const bytes = Buffer.from(base64, 'base64');
  const der = bytes.length === 32 ? Buffer.concat([pkcs8Prefix, bytes]) : bytes;
  try {
    const key = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
    if (key.asymmetricKeyType === 'ed25519') return key;
  } catch {
    // Said below, without the key's bytes.
  }
  throw badKey(
    'passports.signingKey is no Ed25519 key: expected base64 of a 32-byte seed or of PKCS#8 in DER',
  );
}

function publicKeysIn(text: string): Record<string, Uint8Array> {
  const entries = text
    .split(',')
    .map((part) => part.trim())
    .filter((part) => part !== '');
  return Object.fromEntries(
    entries.map((entry) => {
      const at = entry.indexOf('=');
      const key = Buffer.from(entry.slice(at + 1), 'base64');
      if (at < 1 || key.length !== 32)
        throw badKey(`"${entry}" in passports.publicKeys is not id=base64 of 32 bytes`);
      return [entry.slice(0, at), new Uint8Array(key)];
    }),
  );
}

function rawPublicKey(privateKey: KeyObject): Uint8Array {
  const { x = '' } = createPublicKey(privateKey).export({ format: 'jwk' });
  return new Uint8Array(Buffer.from(x, 'base64url'));
}

const badKey = (message: string): TallymanError => new TallymanError('BAD_CONFIG', message);

/** SPKI of an Ed25519 key is this prefix and its 32 bytes (RFC 8410). */
const spkiPrefix = Buffer.from('302a300506032b6570032100', 'hex');
const keyObjects = new Map<string, KeyObject>();

export function isSignedBy(publicKey: Uint8Array, message: Uint8Array, signature: Uint8Array): boolean {
  const name = Buffer.from(publicKey).toString('hex');
  const key =
    keyObjects.get(name) ??
    createPublicKey({ key: Buffer.concat([spkiPrefix, publicKey]), format: 'der', type: 'spki' });
  if (keyObjects.size < 100) keyObjects.set(name, key);
  return verify(null, message, key, signature);
}
