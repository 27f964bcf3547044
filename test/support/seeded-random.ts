import { randomInt } from 'node:crypto';
import { onTestFailed } from 'vitest';
import { type Random, randomOf } from './random.ts';

/** Random numbers for one test. If it fails it prints its seed; TEST_SEED makes the same numbers again. */
export function seededRandom(): Random {
  const random = randomOf(Number(process.env.TEST_SEED ?? randomInt(2 ** 31)));
  onTestFailed(() => console.error(`repeat with TEST_SEED=${random.seed}`));
  return random;
}
