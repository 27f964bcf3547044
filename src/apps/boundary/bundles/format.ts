/**
 * A bundle: what crosses without a line, as one file. It is a tar archive (POSIX ustar), so that the people who let it through
 * can list and read it with the tools they have, and it can be written and read as a stream:
 *
 *   header.json                          kind, tenant, zones, epoch, first offset, chain hash before it, time
 *   facts/<first offset>.jsonl           up to 500 facts, one a line, as they lie in the log
 *   objects/<first offset>/<sha256>      the objects that these facts name; then the next facts, and so on
 *   manifest.json                        what the header says, last offset, chain hash, digest of all bytes before, signature
 *
 * A bundle of receipts, for the way back, has `receipts/<n>.jsonl` and `quarantined/<n>.jsonl` instead.
 *
 * The manifest comes last: what it says is known when everything was written. Nothing follows it.
 */
import { type KeyObject, sign, verify } from 'node:crypto';
import type { ZonePair } from '../domain/delivery.ts';
import { BoundaryError } from '../domain/errors.ts';
import type { ReceiptKey } from '../domain/receipt.ts';

export const bundleFormat = 'tallyman boundary bundle 1';

export type BundleKind = 'facts' | 'receipts';

export interface BundleHeader extends ZonePair {
  readonly format: typeof bundleFormat;
  readonly kind: BundleKind;
  readonly tenantId: string;
  /** Of the sender's stream. */
  readonly epoch: string;
  readonly firstOffset: number;
  /** Of facts: the chain hash of the entry before the first one. Of receipts: empty. */
  readonly chainBefore: string;
  /** Milliseconds since 1970, by the clock of the node that wrote it. */
  readonly createdAt: number;
}

export interface BundleManifest extends BundleHeader {
  readonly lastOffset: number;
  /** The sender's chain hash at the last offset. */
  readonly chain: string;
  /** SHA-256, in hex, over all bytes of the file before the manifest's own block. */
  readonly sha256: string;
  readonly keyId: string;
  /** Ed25519 over `manifestText`, base64. */
  readonly signature: string;
}

/** The bytes that are signed, a line for each part, as in a receipt. */
export const manifestText = (manifest: Omit<BundleManifest, 'signature'>): string =>
  [
    manifest.format,
    manifest.kind,
    manifest.tenantId,
    manifest.from,
    manifest.to,
    manifest.epoch,
    manifest.firstOffset,
    manifest.lastOffset,
    manifest.chainBefore,
    manifest.chain,
    manifest.sha256,
    manifest.createdAt,
    manifest.keyId,
  ].join('\n');

export const signManifest = (
  manifest: Omit<BundleManifest, 'keyId' | 'signature'>,
  key: ReceiptKey,
): BundleManifest => {
  const named = { ...manifest, keyId: key.id };
  const signature = sign(null, Buffer.from(manifestText(named)), key.privateKey).toString('base64');
  return { ...named, signature };
};

/** The public key of a zone; undefined: it is not known here. */
export type KeyOf = (zone: string, keyId: string) => KeyObject | undefined;

/** Facts are signed by the zone that sends them, receipts by the zone that received. */
export const signerOf = ({ kind, from, to }: Pick<BundleManifest, 'kind' | 'from' | 'to'>): string =>
  kind === 'facts' ? from : to;

export function isManifestGenuine(manifest: BundleManifest, key: KeyObject): boolean {
  const signature = Buffer.from(manifest.signature, 'base64');
  // The last digit of base64 has bits that mean nothing: there is one way to write a bundle.
  const isExact = signature.toString('base64') === manifest.signature;
  return isExact && verify(null, Buffer.from(manifestText(manifest)), key, signature);
}

/** Sixteen digits: names sort as the offsets do, and hold every offset that there can be. */
const padded = (offset: number): string => String(offset).padStart(16, '0');

export const names = {
  header: 'header.json',
  manifest: 'manifest.json',
  facts: (first: number): string => `facts/${padded(first)}.jsonl`,
  object: (first: number, digest: string): string =>
    `objects/${padded(first)}/${digest.slice('sha256:'.length)}`,
  receipts: (n: number): string => `receipts/${padded(n)}.jsonl`,
  quarantined: (n: number): string => `quarantined/${padded(n)}.jsonl`,
} as const;

/** Limits of what is read into memory at once; an export stays far below them. */
export const sizes = {
  chunkFacts: 500,
  chunkBytes: 1024 * 1024,
  mostOfAChunk: 16 * 1024 * 1024,
  mostOfJson: 64 * 1024,
} as const;

export const linesOf = (items: readonly unknown[]): Buffer =>
  Buffer.from(items.map((item) => `${JSON.stringify(item)}\n`).join(''));

/** The file may be sound: it is this node that lacks the key. */
export const unknownKey = (signer: string, keyId: string): BoundaryError =>
  new BoundaryError(
    'FAILED_PRECONDITION',
    'unknown_key',
    `the bundle is not signed by a key that is known here: zone "${signer}" signed it with the key "${keyId}". Nothing was taken. If ` +
      `that is the key of zone "${signer}", add its public half to boundary.peers.${signer}.receiptKeys and restart this node.`,
  );

/** What is wrong with a bundle, and where. */
export class BadBundle extends BoundaryError {
  /** The file ends too early: it may still be on its way. */
  readonly isCutOff: boolean;

  constructor(place: string, what: string, cause?: unknown, isCutOff = false) {
    super(
      'INVALID_ARGUMENT',
      'bad_bundle',
      `the bundle is refused, and nothing was taken from it: ${place}: ${what}`,
      { cause, details: { place } },
    );
    this.isCutOff = isCutOff;
  }
}
