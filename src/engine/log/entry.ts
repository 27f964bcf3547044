/**
 * What an entry is made of, and how its hashes are computed. A reader that has an entry and the chain hash before it can
 * compute its chain hash, and so tell whether anything was changed.
 */
import { hash } from 'node:crypto';
import { TallymanError } from '../errors.ts';
import { requireText } from '../validate.ts';

export interface NewEntry {
  /** Identifies the entry forever: appending it again returns the first offset and adds nothing. */
  readonly key: string;
  /** Any JSON value. */
  readonly payload: unknown;
  /**
   * What makes two entries of one key the same: a SHA-256 as 64 hex digits. Default: that of the payload's JSON text, in
   * which the order of an object's members counts.
   */
  readonly digest?: string;
}

export interface LogEntry {
  readonly offset: number;
  readonly key: string;
  readonly digest: string;
  /** In hex: proves everything in the stream up to this entry. See `nextChain`. */
  readonly chain: string;
  readonly appendedAt: Date;
  readonly payload: unknown;
  /** The payload as it was appended, byte for byte. */
  readonly text: string;
}

/** An entry as it goes to SQL. */
export interface Prepared {
  readonly key: string;
  readonly keyHash: string;
  readonly digest: string;
  readonly payloadHash: string;
  /** JSON text. */
  readonly payload: string;
  readonly bytes: number;
}

/** Nearly all keys look like this and need no other check. */
const ordinaryKey = /^[\x20-\x7e]{1,512}$/;
const sha256 = /^[0-9a-f]{64}$/;

export function prepare(
  { key, payload, digest }: NewEntry,
  { keyPrefix, maxPayloadBytes }: { readonly keyPrefix: string; readonly maxPayloadBytes: number },
): Prepared {
  if (!ordinaryKey.test(key)) {
    requireText(key, 'key', 512);
    // A lone surrogate is not written as it is: two keys would become one.
    if (!key.isWellFormed()) throw new TallymanError('BAD_OPTION', 'key is not well-formed Unicode');
  }
  if (digest !== undefined && !sha256.test(digest))
    throw new TallymanError(
      'BAD_OPTION',
      `digest of entry "${key}" must be a SHA-256 as 64 hex digits in lower case`,
    );
  const text = JSON.stringify(payload);
  if (text === undefined)
    throw new TallymanError('VALIDATION_ERROR', `payload of entry "${key}" cannot be written as JSON`);
  const bytes = Buffer.byteLength(text);
  if (bytes > maxPayloadBytes)
    throw new TallymanError(
      'PAYLOAD_TOO_LARGE',
      `payload of entry "${key}" has ${bytes} bytes; the limit is ${maxPayloadBytes}. Store it elsewhere and append a reference.`,
    );
  const payloadHash = hash('sha256', text);
  return {
    key,
    keyHash: keyHashOf(keyPrefix, key),
    digest: digest ?? payloadHash,
    payloadHash,
    payload: text,
    bytes,
  };
}

/** Lengths go before the parts, so that no two tenants, key spaces and keys give the same text. */
export const keyPrefixOf = (tenantId: string, keySpace: string): string =>
  `${tenantId.length}:${tenantId}${keySpace.length}:${keySpace}`;

export const keyHashOf = (keyPrefix: string, key: string): string =>
  hash('sha256', keyPrefix + key).slice(0, 32);

/** The chain hash before the first entry of a stream. */
export const firstChain = (epoch: string): string =>
  hash('sha256', Buffer.from(epoch.replaceAll('-', ''), 'hex'));

/** The chain hash before the first entry of a new epoch, from the last one of the former epoch; see log_new_epoch. */
export const newEpochChain = (before: string, epoch: string): string =>
  hash('sha256', Buffer.from(before + epoch.replaceAll('-', ''), 'hex'));

/** The chain hash of an entry, from that of the entry before. */
export const nextChain = (
  before: string,
  { offset, key, digest, text }: Pick<LogEntry, 'offset' | 'key' | 'digest' | 'text'>,
): string => chainOver(before, { offset, key, digest, textHash: hash('sha256', text) });

/** The same for a reader that has the hash of the text only. The key comes last: all else has a fixed length. */
export function chainOver(
  before: string,
  {
    offset,
    key,
    digest,
    textHash,
  }: Pick<LogEntry, 'offset' | 'key' | 'digest'> & { readonly textHash: string },
): string {
  const fixed = Buffer.alloc(104);
  fixed.write(before, 0, 'hex');
  fixed.writeBigInt64BE(BigInt(offset), 32);
  fixed.write(digest, 40, 'hex');
  fixed.write(textHash, 72, 'hex');
  return hash('sha256', Buffer.concat([fixed, Buffer.from(key)]));
}
