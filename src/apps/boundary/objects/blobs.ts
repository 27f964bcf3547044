/** The port to the bytes of objects, by their digest. It knows no names; who may delete what is decided above it. */
import { BoundaryError } from '../domain/errors.ts';

export interface BlobInfo {
  /** `sha256:` and 64 hex digits. */
  readonly digest: string;
  readonly size: number;
}

/** Bytes that are durable, but not visible yet. */
export interface Staged extends BlobInfo {
  /** Makes them visible under their digest, durably. They may be there already, or what is left of them. */
  publish(): Promise<void>;
  /** Forgets them. Call it in the end in any case. */
  discard(): Promise<void>;
}

export interface StageOptions {
  readonly maxBytes: number;
  /**
   * Names an upload that may be continued: if the source breaks off, what has come is kept for a while. `from` must be the
   * number of bytes that were kept (`staged`).
   */
  readonly resume?: { readonly uploadId: string; readonly from: number };
}

export interface Blobs {
  /** Writes bytes as they come, holding no more than a chunk in memory. If the source fails, nothing is left of them. */
  stage(source: AsyncIterable<Uint8Array>, options: StageOptions): Promise<Staged>;
  /** How many bytes of an upload were kept; 0 if none. */
  staged(uploadId: string): Promise<number>;
  /** Holds no more than a few chunks in memory. Throws `LostBytes` where there is no such blob. */
  read(digest: string, range: { readonly from: number; readonly count: number }): AsyncIterable<Uint8Array>;
  has(digest: string): Promise<boolean>;
  /** Digests of blobs that were published, or published again, before this time. */
  olderThan(time: Date): AsyncIterable<string>;
  /**
   * Deletes a blob unless `isNeeded`, which is asked while nobody can find the blob: if it says yes or fails, the blob is put
   * back.
   */
  remove(digest: string, isNeeded: () => Promise<boolean>): Promise<boolean>;
  /** Removes uploads that got no bytes since this time. Returns how many. */
  sweep(before: Date): Promise<number>;

  /** Why the storage cannot be used at present. */
  readonly trouble: string | undefined;
  stop(): Promise<void>;
}

/** Bytes that were published are not there any more. */
export class LostBytes extends Error {}

const digestPattern = /^sha256:([0-9a-f]{64})$/;

/** It becomes part of a path or a subject. */
export function hexOf(digest: string): string {
  const hex = digestPattern.exec(digest)?.[1];
  if (hex === undefined) throw new Error(`not a digest: ${digest}`);
  return hex;
}

export const objectTooLarge = (maxBytes: number): BoundaryError =>
  new BoundaryError(
    'INVALID_ARGUMENT',
    'object_too_large',
    `the object has more than ${maxBytes} bytes, which is the limit`,
  );

export const wrongStart = ({ from }: { readonly from: number }, kept: number): BoundaryError =>
  new BoundaryError(
    'OUT_OF_RANGE',
    'wrong_start',
    `the upload cannot go on at byte ${from}: ${kept} bytes of it are kept; go on there`,
    { details: { kept } },
  );
