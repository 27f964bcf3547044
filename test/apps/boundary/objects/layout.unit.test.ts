import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  chunkBytes,
  countChunks,
  sizeOf,
  slicesOf,
} from '../../../../src/apps/boundary/objects/jetstream/layout.ts';

/** The chunks of segments as they are written, each byte named by its place. */
function written(segments: readonly number[]): { from: number; to: number }[] {
  const chunks: { from: number; to: number }[] = [];
  let at = 0;
  for (const bytes of segments)
    for (let left = bytes; left > 0; left -= chunkBytes) {
      const to = at + Math.min(left, chunkBytes);
      chunks.push({ from: at, to });
      at = to;
    }
  return chunks;
}

test('BND-5: the slices of a range are its bytes, in order, whatever segments they lie in', () => {
  const bytes = fc.oneof(
    fc.integer({ min: 1, max: 3 * chunkBytes }),
    fc.constantFrom(1, chunkBytes - 1, chunkBytes, chunkBytes + 1, 2 * chunkBytes),
  );
  fc.assert(
    fc.property(fc.array(bytes, { maxLength: 5 }), fc.nat(), fc.nat(), (segments, a, b) => {
      const layout = { upload: 'u', segments };
      const size = sizeOf(layout);
      const from = size === 0 ? 0 : a % (size + 1);
      const count = b % (size - from + 1);
      const chunks = written(segments);
      expect(countChunks(layout)).toBe(chunks.length);
      let reached = from;
      for (const slice of slicesOf(layout, { from, count })) {
        const chunk = chunks[slice.chunk];
        expect(slice.from).toBeLessThan(slice.to);
        expect((chunk?.from ?? Number.NaN) + slice.from).toBe(reached);
        reached = (chunk?.from ?? Number.NaN) + slice.to;
        expect(reached).toBeLessThanOrEqual(chunk?.to ?? Number.NaN);
      }
      expect(reached).toBe(from + count);
    }),
  );
});
