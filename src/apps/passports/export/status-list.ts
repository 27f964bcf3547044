import { gzipSync } from 'node:zlib';
import type { JsonObject } from '../compile/index.ts';
import { didOf } from './did.ts';

/*
 * W3C Bitstring Status List: one list for each passport, where the bit of a version's number is set once the version has
 * ended. It is computed from the versions, so that no list can be forgotten.
 */

/** The shortest list that the specification allows. */
const fewestBits = 131_072;

export const statusListUrl = (labelLink: string): string => `${labelLink}/status`;

export function statusEntry(labelLink: string, versionNumber: number): JsonObject {
  const list = statusListUrl(labelLink);
  return {
    id: `${list}#${versionNumber}`,
    type: 'BitstringStatusListEntry',
    statusPurpose: 'revocation',
    statusListIndex: String(versionNumber),
    statusListCredential: list,
  };
}

export interface StatusListSource {
  readonly origin: string;
  readonly labelLink: string;
  /** Numbers of versions that are SUPERSEDED or REVOKED; of a ceased passport all. */
  readonly ended: readonly number[];
  /** When the list last changed, RFC 3339 in UTC. */
  readonly changedAt: string;
}

/** Without proof: `withDataIntegrity` or `asJwt` signs it. */
export function statusListOf({ origin, labelLink, ended, changedAt }: StatusListSource): JsonObject {
  const list = statusListUrl(labelLink);
  return {
    '@context': ['https://www.w3.org/ns/credentials/v2'],
    id: list,
    type: ['VerifiableCredential', 'BitstringStatusListCredential'],
    issuer: didOf(origin),
    validFrom: changedAt,
    credentialSubject: {
      id: `${list}#list`,
      type: 'BitstringStatusList',
      statusPurpose: 'revocation',
      encodedList: encodedList(ended),
    },
  };
}

/** The first index is the leftmost bit; then gzip, base64url without padding, and `u` of multibase in front. */
export function encodedList(ended: readonly number[]): string {
  const bits = Math.max(fewestBits, ...ended.map((index) => index + 1));
  const bytes = Buffer.alloc(Math.ceil(bits / 8));
  for (const index of ended) bytes[index >> 3] = (bytes[index >> 3] ?? 0) | (0x80 >> (index & 7));
  return `u${gzipSync(bytes).toString('base64url')}`;
}
