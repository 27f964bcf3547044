import { describe, expect, test } from 'vitest';
import type { ExaminedBatch } from '../../../src/apps/rfid/examined-batch.ts';
import { SharedCommits } from '../../../src/apps/rfid/shared-commits.ts';
import type { FailedRead, ReadResult } from '../../../src/apps/rfid/tag-read.ts';

/** A batch of failures: what they are does not matter here, their names do. */
const batchOf = (...names: string[]): ExaminedBatch => ({
  sound: [],
  failures: names.map((message) => ({ message }) as FailedRead),
  places: names.map((_, place) => ({ sound: false, place })),
});
const resultsOf = ({ failures, places }: ExaminedBatch): ReadResult[] =>
  places.map(({ place }) => ({ errorMessage: failures[place]?.message ?? null }) as ReadResult);
const names = (results: readonly ReadResult[]) => results.map(({ errorMessage }) => errorMessage);

describe('shared commits', () => {
  test('calls that come together share one, in their order, and each gets its own answers', async () => {
    const sizes: number[] = [];
    const commits = new SharedCommits(async (batch) => {
      sizes.push(batch.places.length);
      return resultsOf(batch);
    });
    const answers = await Promise.all([
      commits.add(batchOf('a')),
      commits.add(batchOf()),
      commits.add(batchOf('b', 'c')),
    ]);
    expect(answers.map(names)).toEqual([['a'], [], ['b', 'c']]);
    expect(sizes).toEqual([3]);
  });

  test('one is under way at a time; a call is not split, and none shares more than 2,000 reads', async () => {
    const sizes: number[] = [];
    let underWay = 0;
    const commits = new SharedCommits(async (batch) => {
      underWay += 1;
      expect(underWay).toBe(1);
      sizes.push(batch.places.length);
      await new Promise((resolve) => setTimeout(resolve, 1));
      underWay -= 1;
      return resultsOf(batch);
    });
    const many = (count: number) => batchOf(...Array.from({ length: count }, String));
    await Promise.all([1500, 500, 1, 5000, 10].map((count) => commits.add(many(count))));
    expect(sizes).toEqual([2000, 1, 5000, 10]);
  });

  test('what the database refuses costs its own caller only', async () => {
    const commits = new SharedCommits(async (batch) => {
      if (batch.failures.some(({ message }) => message === 'bad')) throw new Error('refused');
      return resultsOf(batch);
    });
    const outcomes = await Promise.allSettled(['a', 'bad', 'b'].map((name) => commits.add(batchOf(name))));
    expect(outcomes.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    expect(names(await commits.add(batchOf('after')))).toEqual(['after']);
  });
});
