import { afterEach, expect, it } from 'vitest';
import { readProducts } from '../../../src/apps/labels/import/csv.ts';

const warnings: Error[] = [];
const note = (warning: Error): void => void warnings.push(warning);
afterEach(() => {
  process.off('warning', note);
  warnings.length = 0;
});

/** As a stream of a file gives it: pieces that end anywhere. */
async function* pieces(text: string, size: number): AsyncGenerator<Buffer> {
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

it('LBL-2 a file of 20,000 lines is read without a warning: waiting for the parser leaves nothing behind', async () => {
  process.on('warning', note);
  const lines = Array.from({ length: 20_000 }, (_, at) => `${at},"Coffee, ground, ${at}",1.99`);
  const text = ['sku,name,price', ...lines].join('\n');
  let read = 0;
  for await (const line of readProducts(pieces(text, 64 * 1024))) {
    expect(line).toHaveProperty('product');
    read += 1;
  }
  // Warnings are emitted on the next tick.
  await new Promise((resolve) => setImmediate(resolve));
  expect(read).toBe(20_000);
  expect(warnings).toEqual([]);
});
