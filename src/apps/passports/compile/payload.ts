import { hashJson } from './canonical.ts';
import {
  type AccessPoint,
  accessPoints,
  type Hash,
  type Payload,
  type PayloadPart,
  type RedactedPayload,
} from './types.ts';

/*
 * The payload's hash is a root over four hashes, one for each access point (BPC-8). Each part has a salt of its own, derived
 * from the secret salt: a reader of one part can verify it against the root, and cannot try candidates for the others,
 * not even for a part that holds a single yes or no.
 */

/** The hash of one part. The point is in it, so that no part can stand in for another. */
export function partHash(point: AccessPoint, part: PayloadPart): Hash {
  return hashJson({ version: 'bpc-payload-part-1', point, salt: part.salt, fields: part.fields });
}

export function pointHashes(payload: Payload | RedactedPayload): readonly [Hash, Hash, Hash, Hash] {
  const of = (point: AccessPoint): Hash => {
    const part = payload.points[point];
    return 'hash' in part ? part.hash : partHash(point, part);
  };
  return [of(1), of(2), of(3), of(4)];
}

export const rootHash = (points: readonly [Hash, Hash, Hash, Hash]): Hash =>
  hashJson({ version: 'bpc-payload-1', points });

/** The same for a payload and for every redaction of it. */
export const payloadHash = (payload: Payload | RedactedPayload): Hash => rootHash(pointHashes(payload));

/** Leaves the parts of the points given, and the hashes of the others. */
export function redactPayload(
  payload: Payload | RedactedPayload,
  points: readonly AccessPoint[],
): RedactedPayload {
  const hashes = pointHashes(payload);
  const part = (point: AccessPoint): PayloadPart | { readonly hash: Hash } =>
    points.includes(point) ? payload.points[point] : { hash: hashes[accessPoints.indexOf(point)] ?? '' };
  return { version: 'bpc-payload-1', points: { 1: part(1), 2: part(2), 3: part(3), 4: part(4) } };
}
