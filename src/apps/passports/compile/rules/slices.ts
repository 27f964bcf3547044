/**
 * A computation that gives way between its parts, so that the caller may let others run meanwhile. A part takes milliseconds,
 * the longest about a tenth of a second.
 */
export type Slices<T> = Generator<void, T>;

/** Rows of a document in one part. */
export const rowsInASlice = 500;

export function atOnce<T>(slices: Slices<T>): T {
  for (;;) {
    const { done, value } = slices.next();
    if (done) return value;
  }
}
