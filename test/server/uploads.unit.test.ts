import { expect, test } from 'vitest';
import { UploadMemory } from '../../src/server/http/uploads.ts';

const mib = 1024 * 1024;

/** How many uploads of 20 MiB find room. */
const taken = (memory: UploadMemory, tenantId: string): number => {
  let uploads = 0;
  while (uploads < 100 && memory.take(tenantId, 20 * mib)) uploads += 1;
  return uploads;
};

test('SEC-5: uploads of one tenant leave room for those of others', () => {
  const memory = new UploadMemory(256 * mib);
  expect(taken(memory, 'greedy')).toBe(6);
  expect(taken(memory, 'another')).toBe(3);
  expect(memory.take('third', 20 * mib)).toBe(true);
  for (let n = 0; n < 6; n += 1) memory.give('greedy', 20 * mib);
  expect(taken(memory, 'greedy')).toBeGreaterThan(1);
});

test('one upload is taken however little memory there is, and a second one is not', () => {
  const memory = new UploadMemory(mib);
  expect(memory.take('a', 20 * mib)).toBe(true);
  expect([memory.take('a', 1), memory.take('b', 1)]).toEqual([false, false]);
  memory.give('a', 20 * mib);
  expect(memory.take('b', 20 * mib)).toBe(true);
});

test('a body without bytes is always taken', () => {
  const memory = new UploadMemory(mib);
  expect([memory.take('a', 0), memory.take('a', 0)]).toEqual([true, true]);
});
