import { setTimeout as sleep } from 'node:timers/promises';
import type { Slices } from '../compile/rules/slices.ts';

/** Computes so long without a pause. */
const sliceMs = 10;

/** Computes in slices, and pauses as long as each has taken: requests of others have the event loop for half of the time. */
export async function betweenOthers<T>(slices: Slices<T>): Promise<T> {
  let begunAt = performance.now();
  for (;;) {
    const { done, value } = slices.next();
    if (done) return value;
    const tookMs = performance.now() - begunAt;
    if (tookMs < sliceMs) continue;
    await sleep(tookMs);
    begunAt = performance.now();
  }
}
