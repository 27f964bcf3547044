import { expect, test } from 'vitest';
import { defineKind } from '../../src/engine/jobs/kind.ts';
import { drained } from '../support/engine.ts';
import { eventScene, moved } from './support.ts';

/*
 * Lists that have payloads end a page before it takes all memory of the process that answers: after 4 MiB.
 */
const large = 'x'.repeat(1_000_000);
const count = 12;

/** The sizes of the pages, and what is on them. */
async function walk(
  next: (cursor: string | undefined) => Promise<{ items: readonly string[]; cursor: string | null }>,
): Promise<{ sizes: number[]; items: string[] }> {
  const sizes: number[] = [];
  const items: string[] = [];
  for (let cursor: string | undefined; ; ) {
    const page = await next(cursor);
    sizes.push(page.items.length);
    items.push(...page.items);
    if (page.cursor === null || page.items.length === 0) return { sizes, items };
    cursor = page.cursor;
  }
}

test('SEC-5: a page of jobs, or of dead letters, ends where its payloads get large, and the next one goes on there', async () => {
  const scene = await eventScene();
  const { tallyman, work } = scene;
  const kind = defineKind<{ text: string }>({
    name: 'large',
    retry: { maxAttempts: 1 },
    handler: () => {
      throw new Error('it fails');
    },
  });
  const ids: string[] = [];
  for (let n = 0; n < count; n += 1) ids.unshift((await tallyman.enqueue(kind, { text: large })).id);
  const small = (await tallyman.enqueue(kind, { text: '' })).id;
  const jobs = () =>
    walk(async (cursor) => {
      const page = await tallyman.jobs.list({}, { limit: 200, ...(cursor && { cursor }) });
      return { items: page.items.map(({ id }) => id), cursor: page.nextCursor };
    });
  const sizes = [6, 5, 2];
  expect(await jobs()).toEqual({ sizes, items: [small, ...ids] });
  const [job] = (await tallyman.jobs.list({}, { limit: 1 })).items;
  expect(Object.keys(job ?? {})).not.toContain('bytesBefore');
  await work({ kinds: [kind] });
  await drained(scene);
  const letters = await walk(async (cursor) => {
    const page = await tallyman.deadLetters.list({}, { limit: 200, ...(cursor && { cursor }) });
    return { items: page.items.map(({ id }) => id), cursor: page.nextCursor };
  });
  expect(letters.sizes).toEqual(sizes);
  expect(new Set(letters.items).size).toBe(count + 1);
  expect((await jobs()).sizes).toEqual(sizes);
});

test('SEC-5: so does a page of events', async () => {
  const { events } = await eventScene();
  const names = Array.from({ length: count }, (_, n) => `P-${n}`);
  for (const name of names) await events.emit(moved(name, { payload: { text: large } }));
  const { sizes, items } = await walk(async (cursor) => {
    const page = await events.list({}, { after: cursor ?? '0', limit: 200 });
    return { items: page.events.map(({ aggregateId }) => aggregateId), cursor: page.cursor };
  });
  expect(sizes).toEqual([5, 5, 2, 0]);
  expect(items).toEqual(names);
});
