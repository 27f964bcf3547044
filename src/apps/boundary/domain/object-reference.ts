import { invalid } from './errors.ts';
import { requireToken } from './text.ts';

/** A stored object that a fact is about. */
export interface ObjectReference {
  readonly bucket: string;
  readonly key: string;
  /** `sha256:` and 64 hex digits. */
  readonly digest: string;
  readonly size?: number;
  readonly mediaType?: string;
  readonly fileName?: string;
}

const digest = /^sha256:[0-9a-f]{64}$/;
const bucket = /^[a-z0-9](?:[a-z0-9.-]{0,61}[a-z0-9])?$/;

export function requireBucket(name: string, field: string): void {
  if (!bucket.test(name))
    throw invalid(
      field,
      `must be 1 to 63 lower-case letters, digits, "." and "-", got ${JSON.stringify(name)}`,
    );
}

/** Up to 512 bytes; slashes are welcome, but a key is not a path. */
export const requireObjectKey = (key: string, field: string): void => requireToken(key, field, 512);

export function requireDigest(text: string, field: string): void {
  if (!digest.test(text))
    throw invalid(
      field,
      `must be "sha256:" and 64 hex digits in lower case, got ${JSON.stringify(text.slice(0, 100))}`,
    );
}

export function checkReference(reference: ObjectReference, field: string): ObjectReference {
  requireBucket(reference.bucket, `${field}.bucket`);
  requireObjectKey(reference.key, `${field}.key`);
  requireDigest(reference.digest, `${field}.digest`);
  const { size, mediaType, fileName } = reference;
  if (size !== undefined && (!Number.isSafeInteger(size) || size < 0))
    throw invalid(`${field}.size`, `must be a number of bytes, got ${size}`);
  if (mediaType !== undefined) requireToken(mediaType, `${field}.media_type`, 256);
  if (fileName !== undefined) requireToken(fileName, `${field}.file_name`, 512);
  return reference;
}

/** Of what a peer has sent: any JSON value. */
export function referenceOf(value: unknown, field: string): ObjectReference {
  const { bucket, key, digest, mediaType, fileName } = Object(value) as Record<string, unknown>;
  const isText = (text: unknown): boolean => typeof text === 'string';
  const isOptional = (text: unknown): boolean => text === undefined || isText(text);
  if (![bucket, key, digest].every(isText) || ![mediaType, fileName].every(isOptional))
    throw invalid(field, 'must have bucket, key and digest, as texts');
  return checkReference(value as ObjectReference, field);
}

/**
 * The reference in an `object_json` that has the members bucket, key and digest, all of them strings. Anything else is
 * ordinary JSON, and means nothing to the boundary.
 */
export function referenceIn(canonical: string, field: string): ObjectReference | undefined {
  if (!canonical.startsWith('{') || !canonical.includes('"digest":"')) return undefined;
  const object = JSON.parse(canonical) as Readonly<Record<string, unknown>>;
  const { bucket: inBucket, key, digest: ofBytes, size, media_type: mediaType, file_name: fileName } = object;
  if (typeof inBucket !== 'string' || typeof key !== 'string' || typeof ofBytes !== 'string')
    return undefined;
  return checkReference(
    {
      bucket: inBucket,
      key,
      digest: ofBytes,
      ...(typeof size === 'number' && { size }),
      ...(typeof mediaType === 'string' && { mediaType }),
      ...(typeof fileName === 'string' && { fileName }),
    },
    field,
  );
}

/** Both name the same bytes under the same name; size, media type and file name are only told along. */
export const sameObject = (a: ObjectReference, b: ObjectReference): boolean =>
  a.bucket === b.bucket && a.key === b.key && a.digest === b.digest;
