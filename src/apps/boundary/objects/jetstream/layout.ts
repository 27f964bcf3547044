/** How bytes lie in chunks: which chunks have a range of them. */

/** Part of the format. A larger one would cost memory, a smaller one a flush of the server's disk more often. */
export const chunkBytes = 256 * 1024;

/**
 * An upload that was cut off n times has n + 1 segments. Each consists of whole chunks, but for its last one. The chunks of all
 * segments are counted together, from 0.
 */
export interface Layout {
  /** Names the chunks. */
  readonly upload: string;
  /** Bytes of each segment, none of them empty. */
  readonly segments: readonly number[];
}

export interface Slice {
  readonly chunk: number;
  /** Bytes of the chunk. */
  readonly from: number;
  readonly to: number;
}

export const sizeOf = ({ segments }: Layout): number => segments.reduce((sum, bytes) => sum + bytes, 0);

const chunksIn = (bytes: number): number => Math.ceil(bytes / chunkBytes);

export const countChunks = ({ segments }: Layout): number =>
  segments.reduce((sum, bytes) => sum + chunksIn(bytes), 0);

/** The chunks with these bytes, in order. */
export function* slicesOf(
  { segments }: Layout,
  { from, count }: { readonly from: number; readonly count: number },
): Generator<Slice> {
  const end = from + count;
  let segmentAt = 0;
  let firstChunk = 0;
  for (const bytes of segments) {
    const first = Math.max(from, segmentAt) - segmentAt;
    const last = Math.min(end, segmentAt + bytes) - segmentAt;
    for (let at = first; at < last; ) {
      const n = Math.floor(at / chunkBytes);
      const to = Math.min(last, (n + 1) * chunkBytes);
      yield { chunk: firstChunk + n, from: at - n * chunkBytes, to: to - n * chunkBytes };
      at = to;
    }
    segmentAt += bytes;
    firstChunk += chunksIn(bytes);
  }
}
