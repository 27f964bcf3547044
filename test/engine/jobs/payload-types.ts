import * as v from 'valibot';
import { expectTypeOf } from 'vitest';
import { z } from 'zod';
import type { JobContext } from '../../../src/engine/jobs/context.ts';
import { defineKind, type Kind } from '../../../src/engine/jobs/kind.ts';
import type { Tallyman } from '../../../src/engine/tallyman.ts';

/*
 * ENG-11, the types of a kind: what is enqueued is the input of its schema, what the handler gets is the output. `tsc` is the
 * judge: a line marked with @ts-expect-error that has no error fails the check. Nothing here is called.
 */

const weigh = defineKind({
  name: 'weigh',
  schema: z.object({
    kg: z.string().transform(Number),
    at: z.coerce.date<string>(),
    unit: z.string().default('kg'),
    sku: z.string().brand<'Sku'>(),
  }),
  lane: {
    key: (payload) => {
      expectTypeOf(payload.kg).toEqualTypeOf<number>();
      return payload.sku;
    },
  },
  handler: (payload) => {
    expectTypeOf(payload.kg).toEqualTypeOf<number>();
    expectTypeOf(payload.at).toEqualTypeOf<Date>();
    expectTypeOf(payload.unit).toEqualTypeOf<string>();
    expectTypeOf(payload.sku).toEqualTypeOf<string & z.core.$brand<'Sku'>>();
  },
});

const good = { kg: '1', at: '2026-01-01', sku: 'P-1' };

export async function typesOfCalls(tallyman: Tallyman, context: JobContext): Promise<void> {
  await tallyman.enqueue(weigh, good);
  await tallyman.enqueue(weigh, { ...good, unit: 'g' });
  // @ts-expect-error: the input is a text
  await tallyman.enqueue(weigh, { ...good, kg: 1 });
  // @ts-expect-error: a field is missing
  await tallyman.enqueue(weigh, { kg: '1', sku: 'P-1' });

  await tallyman.enqueueMany(weigh, [{ payload: good, lane: 'x' }]);
  // @ts-expect-error: the input is a text
  await tallyman.enqueueMany(weigh, [{ payload: { ...good, kg: 1 } }]);

  await context.enqueue(weigh, good);
  // @ts-expect-error: the input is a text
  await context.enqueue(weigh, { ...good, kg: 1 });

  await tallyman.schedules.upsert({ name: 's', cron: '* * * * *', kind: weigh, payload: good });
  // @ts-expect-error: the input is a text
  await tallyman.schedules.upsert({ name: 's', cron: '* * * * *', kind: weigh, payload: { ...good, kg: 1 } });
  await tallyman.schedules.upsert({ name: 's', cron: '* * * * *', kind: 'weigh', payload: { anything: 1 } });
}

/** Without a schema, input and output are one type, given or taken from the handler. */
export async function typesWithoutSchema(tallyman: Tallyman): Promise<void> {
  const given = defineKind<{ n: number }>({ name: 'given', handler: ({ n }) => n });
  await tallyman.enqueue(given, { n: 1 });
  // @ts-expect-error: not a number
  await tallyman.enqueue(given, { n: 'x' });

  const taken = defineKind({ name: 'taken', handler: ({ n }: { n: number }) => n });
  await tallyman.enqueue(taken, { n: 1 });
  // @ts-expect-error: not a number
  await tallyman.enqueue(taken, { n: 'x' });
}

/** Another Standard Schema library. */
export async function typesOfValibot(tallyman: Tallyman): Promise<void> {
  const kind = defineKind({
    name: 'valibot',
    schema: v.object({ n: v.pipe(v.string(), v.transform(Number)), unit: v.optional(v.string(), 'kg') }),
    handler: (payload) => {
      expectTypeOf(payload).toEqualTypeOf<{ n: number; unit: string }>();
    },
  });
  await tallyman.enqueue(kind, { n: '1' });
  // @ts-expect-error: the input is a text
  await tallyman.enqueue(kind, { n: 1 });
}

type Input = typeof weigh extends Kind<infer _, infer I> ? I : never;
expectTypeOf<Input['kg']>().toEqualTypeOf<string>();
expectTypeOf<Input['unit']>().toEqualTypeOf<string | undefined>();
