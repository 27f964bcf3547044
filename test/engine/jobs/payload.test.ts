import * as v from 'valibot';
import { describe, expect, test } from 'vitest';
import { z } from 'zod';
import { type AnyKind, defineKind } from '../../../src/engine/jobs/kind.ts';
import type { StandardSchema } from '../../../src/engine/jobs/standard-schema.ts';
import { type Bundle, drained, engine } from '../../support/engine.ts';

/*
 * Schemas that change what they accept. The input is checked and stored, the output goes to the handler; at each attempt
 * the stored input is parsed anew.
 */

interface Case {
  readonly name: string;
  readonly schema: StandardSchema;
  /** What the caller gives, and what is stored if that differs. */
  readonly input: unknown;
  readonly stored?: unknown;
  readonly output: unknown;
}

const cases: readonly Case[] = [
  { name: 'coerce', schema: z.object({ n: z.coerce.number() }), input: { n: '7' }, output: { n: 7 } },
  {
    name: 'default',
    schema: z.object({ unit: z.string().default('kg') }),
    input: {},
    output: { unit: 'kg' },
  },
  {
    name: 'transform to another type',
    schema: z.object({ kg: z.string().transform(Number) }),
    input: { kg: '1.5' },
    output: { kg: 1.5 },
  },
  {
    name: 'transform that must not run twice',
    schema: z.object({ cents: z.number().transform((euros) => euros * 100) }),
    input: { cents: 3 },
    output: { cents: 300 },
  },
  {
    name: 'pipe',
    schema: z.object({ n: z.string().transform(Number).pipe(z.number().max(9)) }),
    input: { n: '9' },
    output: { n: 9 },
  },
  {
    name: 'brand',
    schema: z.object({ sku: z.string().brand<'Sku'>() }),
    input: { sku: 'P-1' },
    output: { sku: 'P-1' },
  },
  {
    name: 'an asynchronous refinement',
    schema: z.object({
      n: z
        .string()
        .transform(async (text) => Number(text))
        .refine(async (n) => n > 0),
    }),
    input: { n: '4' },
    output: { n: 4 },
  },
  {
    name: 'a Date, as text',
    schema: z.object({ at: z.coerce.date() }),
    input: { at: new Date('2026-03-01T00:00:00Z') },
    stored: { at: '2026-03-01T00:00:00.000Z' },
    output: { at: new Date('2026-03-01T00:00:00Z') },
  },
  {
    name: 'an output that JSON does not have',
    schema: z.object({ tags: z.array(z.string()).transform((tags) => new Set(tags)) }),
    input: { tags: ['a', 'b'] },
    output: { tags: new Set(['a', 'b']) },
  },
  {
    name: 'keys that the schema does not know',
    schema: z.object({ a: z.number() }),
    input: { a: 1, b: 2 },
    output: { a: 1 },
  },
  {
    name: 'another library (Valibot)',
    schema: v.object({ n: v.pipe(v.string(), v.transform(Number)), unit: v.optional(v.string(), 'kg') }),
    input: { n: '2' },
    output: { n: 2, unit: 'kg' },
  },
];

/** Collects what the handler gets; the first attempt fails, so that the payload is parsed at two attempts. */
function recording(schema: StandardSchema): { kind: AnyKind; got: unknown[] } {
  const got: unknown[] = [];
  const kind = defineKind({
    name: 'recording',
    schema,
    retry: { backoff: () => 1 },
    handler: (payload, { attempt }) => {
      got.push(payload);
      if (attempt === 1) throw new Error('once more');
    },
  });
  return { kind, got };
}

async function stored(bundle: Bundle, id: string): Promise<unknown> {
  return (await bundle.tallyman.jobs.get(id))?.payload;
}

describe('ENG-11: what was checked is stored, and the handler gets the output of the schema', () => {
  for (const { name, schema, input, stored: kept = input, output } of cases)
    test(name, async () => {
      const bundle = await engine();
      const { kind, got } = recording(schema);
      const one = await bundle.tallyman.enqueue(kind, input);
      const [many] = await bundle.tallyman.enqueueMany(kind, [{ payload: input }]);
      const inTransaction = await bundle.tallyman.database.transaction((tx) =>
        bundle.tallyman.enqueue(kind, input, { tx }),
      );
      for (const id of [one.id, many?.id ?? '', inTransaction.id])
        expect(await stored(bundle, id)).toEqual(kept);
      const schedule = await bundle.tallyman.schedules.upsert({
        name: 'hourly',
        cron: '@hourly',
        kind,
        payload: input,
      });
      expect(schedule.payload).toEqual(kept);
      await bundle.work({ kinds: [kind] });
      await drained(bundle);
      expect(got).toEqual(Array.from({ length: 6 }, () => output));
      expect((await bundle.tallyman.jobs.counts()).SUCCEEDED).toBe(3);
    });

  test('a job that an idle worker claims with its enqueue gets the output, too', async () => {
    const bundle = await engine();
    const got: number[] = [];
    const schema = z.object({ n: z.string().transform(Number) });
    const kind = defineKind({ name: 'idle', schema, handler: ({ n }) => void got.push(n) });
    await bundle.work({ kinds: [kind], pollIntervalMs: 60_000 });
    for (const n of ['1', '2', '3']) await bundle.tallyman.enqueue(kind, { n });
    await drained(bundle);
    expect(got.toSorted()).toEqual([1, 2, 3]);
  });

  test('a lane is named by the output: what the schema makes equal shares a lane', async () => {
    const bundle = await engine();
    const schema = z.object({ shelf: z.string().trim().toLowerCase() });
    const kind = defineKind({
      name: 'shelves',
      schema,
      lane: { key: ({ shelf }) => shelf },
      handler: () => {},
    });
    await bundle.tallyman.enqueue(kind, { shelf: ' A1' });
    await bundle.tallyman.enqueueMany(kind, [{ payload: { shelf: 'a1 ' } }]);
    const { options } = await bundle.tallyman.schedules.upsert({
      name: 's',
      cron: '@hourly',
      kind,
      payload: { shelf: 'A1' },
    });
    expect(options.lane).toBe('a1');
    const { items } = await bundle.tallyman.jobs.list();
    expect(items.map(({ lane, payload }) => [lane, payload])).toEqual([
      ['a1', { shelf: 'a1 ' }],
      ['a1', { shelf: ' A1' }],
    ]);
  });
});

describe('ENG-11: what JSON would change is refused at enqueue, not by the worker', () => {
  const refused = async (schema: StandardSchema, payload: unknown): Promise<string> => {
    const bundle = await engine();
    const kind = defineKind({ name: 'strict', schema, handler: () => {} });
    const outcomes = await Promise.allSettled([
      bundle.tallyman.enqueue(kind, payload),
      bundle.tallyman.enqueueMany(kind, [{ payload }]),
      bundle.tallyman.schedules.upsert({ name: 's', cron: '@hourly', kind, payload }),
    ]);
    const messages = outcomes.map((outcome) =>
      outcome.status === 'rejected' ? `${outcome.reason.code}: ${outcome.reason.message}` : 'accepted',
    );
    expect((await bundle.tallyman.jobs.list()).items).toEqual([]);
    expect(await bundle.tallyman.schedules.list()).toEqual([]);
    for (const message of messages) expect(message).toMatch(/^VALIDATION_ERROR: payload of /);
    return messages[0] ?? '';
  };

  test('a Date where the schema wants a Date', async () => {
    expect(await refused(z.object({ at: z.date() }), { at: new Date() })).toMatch(
      /refused at at: .*as it is stored, as JSON/,
    );
  });

  test('no payload where the schema wants one, or none', async () => {
    expect(await refused(z.string().optional(), undefined)).toMatch(/undefined is left out or null/);
  });

  test('what does not fit either way has no advice about JSON', async () => {
    expect(await refused(z.object({ n: z.number() }), { n: 'x' })).not.toMatch(/JSON/);
  });

  test('an asynchronous refinement that fails', async () => {
    const schema = z.object({ n: z.number().refine(async (n) => n > 0, { error: 'too small' }) });
    expect(await refused(schema, { n: -1 })).toMatch(/refused at n: too small/);
  });

  test('what cannot be written', async () => {
    expect(await refused(z.any(), { n: 1n })).toMatch(/cannot be written as JSON: .*BigInt/);
    expect(await refused(z.any(), () => {})).toMatch(/cannot be written as JSON/);
  });
});
