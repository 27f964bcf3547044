/** The port to the bytes of objects, by their digest. It knows no names; who may delete what is decided above it. */

export interface BlobInfo {
  /** `sha256:` and 64 hex digits. */
  readonly digest: string;
  readonly size: number;
}

/** Bytes that are durable, but not visible yet. */
export interface Staged extends BlobInfo {
  /** Makes them visible under their digest, durably. They may be there already. */
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
  /** Throws where there is no such blob. */
  read(digest: string, range: { readonly from: number; readonly count: number }): AsyncIterable<Uint8Array>;
  has(digest: string): Promise<boolean>;
  /** Digests of blobs that were published, or published again, before this time. */
  olderThan(time: Date): AsyncIterable<string>;
  /**
   * Deletes a blob unless `isNeeded`, which is asked while nobody can find the blob: if it says yes or fails, the blob is put
   * back.
   */
  remove(digest: string, isNeeded: () => Promise<boolean>): Promise<boolean>;
  /** Removes uploads that were given up before this time. Returns how many. */
  sweep(before: Date): Promise<number>;
}
