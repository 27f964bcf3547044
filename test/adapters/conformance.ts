import { describe, expect, onTestFinished, test } from 'vitest';
import type { Queryable } from '../../src/engine/database/database.ts';
import { defineKind } from '../../src/engine/jobs/kind.ts';
import { type Bundle, engine } from '../support/engine.ts';

/*
 * What every adapter promises, on the real library: a job is part of the library's transaction, and its payload arrives
 * as it was given.
 */

/** A transaction of the library while it runs. */
export interface Running {
  /** What the library hands to its user. */
  readonly native: unknown;
  /** The same through the adapter. */
  readonly tx: Queryable;
  /** Inserts into `parcels`, as users of the library do. */
  insert(id: number): Promise<unknown>;
  /** `select tallyman.enqueue('any', <payload>)` with the payload as the library passes jsonb. */
  enqueueJsonb(payload: object): Promise<unknown>;
}

export interface Opened {
  transaction(work: (running: Running) => Promise<void>): Promise<unknown>;
  /** Hands the adapter what is not a transaction. */
  wrapRoot(): Queryable;
  close(): Promise<unknown>;
}

export interface Library {
  readonly name: string;
  open(url: string): Promise<Opened> | Opened;
}

const any = defineKind({ name: 'any', handler: () => {} });

const payloads: readonly unknown[] = [
  { a: 1, nested: { list: [1, 'two', null], empty: {} } },
  {},
  [],
  [1, 2, 3],
  ['a', { b: 'c' }],
  'text',
  '',
  '{"looks": "like JSON"}',
  '"quoted"',
  'a \\ backslash, a "quote", a $1, a ?, {braces}, ü, 🏷',
  0,
  -1.5,
  true,
  false,
  null,
];

async function scene(library: Library): Promise<{ bundle: Bundle; opened: Opened }> {
  const bundle = await engine();
  await bundle.rows('create table public.parcels (id integer primary key)');
  await bundle.rows(`select tallyman.register_kind('any')`);
  const opened = await library.open(bundle.url);
  onTestFinished(async () => {
    await opened.close();
  });
  return { bundle, opened };
}

const parcels = (bundle: Bundle) => bundle.rows('select id from parcels order by id');

const jobsOf = async ({ tallyman }: Bundle) => (await tallyman.jobs.list({}, { limit: 100 })).items;

export function conforms(library: Library): void {
  describe(`ENG-9: enqueue in a transaction of ${library.name}`, () => {
    test('a commit brings the row and the job, and nobody sees either before', async () => {
      const { bundle, opened } = await scene(library);
      let seen: unknown;
      let answer: unknown;
      await opened.transaction(async ({ tx, insert }) => {
        await insert(1);
        answer = await bundle.tallyman.enqueue(any, { parcel: 1 }, { tx });
        seen = [await parcels(bundle), await jobsOf(bundle)];
      });
      expect(seen).toEqual([[], []]);
      expect(await parcels(bundle)).toEqual([{ id: 1 }]);
      const [job] = await jobsOf(bundle);
      expect(job).toMatchObject({ kind: 'any', payload: { parcel: 1 } });
      expect(answer).toEqual({ id: job?.id, existing: false });
    });

    test('a rollback leaves nothing: no row, no job, no key', async () => {
      const { bundle, opened } = await scene(library);
      const failed = opened.transaction(async ({ tx, insert }) => {
        await insert(1);
        await bundle.tallyman.enqueue(any, {}, { tx });
        await bundle.tallyman.enqueue(any, {}, { tx, dedupeKey: 'k', lane: 'l' });
        await bundle.tallyman.enqueueMany(any, [{ payload: 1 }, { payload: 2, delayMs: 1000 }], { tx });
        throw new Error('changed my mind');
      });
      await expect(failed).rejects.toThrow('changed my mind');
      expect(await parcels(bundle)).toEqual([]);
      expect(await jobsOf(bundle)).toEqual([]);
      expect(await bundle.tallyman.enqueue(any, {}, { dedupeKey: 'k' })).toMatchObject({ existing: false });
    });

    test('a dedupe key adds one job, within a transaction and over several', async () => {
      const { bundle, opened } = await scene(library);
      const answers: { id: string; existing: boolean }[] = [];
      for (let i = 0; i < 2; i += 1)
        await opened.transaction(async ({ tx }) => {
          for (let j = 0; j < 2; j += 1)
            answers.push(await bundle.tallyman.enqueue(any, { i, j }, { tx, dedupeKey: 'once' }));
        });
      const [first] = answers;
      expect(answers).toEqual([false, true, true, true].map((existing) => ({ id: first?.id, existing })));
      expect((await jobsOf(bundle)).map(({ payload }) => payload)).toEqual([{ i: 0, j: 0 }]);
    });

    test('payloads are encoded once: objects, lists, texts, numbers, null', async () => {
      const { bundle, opened } = await scene(library);
      const { tallyman } = bundle;
      const ids: string[][] = [];
      await opened.transaction(async ({ tx }) => {
        for (const [i, payload] of payloads.entries()) {
          const plain = await tallyman.enqueue(any, payload, { tx });
          const full = await tallyman.enqueue(any, payload, {
            tx,
            lane: 'it’s "a" lane',
            dedupeKey: `k${i}`,
          });
          const many = await tallyman.enqueueMany(any, [{ payload }, { payload, delayMs: 1000 }], { tx });
          ids.push([plain.id, full.id, ...many.map(({ id }) => id)]);
        }
      });
      for (const [i, payload] of payloads.entries())
        for (const id of ids[i] ?? []) expect((await tallyman.jobs.get(id))?.payload).toEqual(payload);
    });

    test('options arrive as they were given', async () => {
      const { bundle, opened } = await scene(library);
      const scheduledAt = new Date('2999-01-01T00:00:00Z');
      const given = { queue: 'q', priority: 0, lane: 'l', tenantId: 'acme', maxAttempts: 3 } as const;
      await opened.transaction(async ({ tx }) => {
        await bundle.tallyman.enqueue(any, {}, { ...given, tx, scheduledAt, correlationId: 'c' });
      });
      expect((await jobsOf(bundle))[0]).toMatchObject({ ...given, scheduledAt, correlationId: 'c' });
    });

    test('tallyman.enqueue(…, jsonb) takes what the library passes as JSON', async () => {
      const { bundle, opened } = await scene(library);
      await opened.transaction(({ enqueueJsonb }) => enqueueJsonb({ n: [1, 'x'] }).then(() => {}));
      expect((await jobsOf(bundle)).map(({ payload }) => payload)).toEqual([{ n: [1, 'x'] }]);
    });

    test('what is not a transaction is refused, and so is a transaction without its adapter', async () => {
      const { bundle, opened } = await scene(library);
      const refusal = {
        code: 'BAD_OPTION',
        message: expect.stringMatching(/needs a transaction: .*Pass what/),
      };
      expect(() => opened.wrapRoot()).toThrow(expect.objectContaining(refusal));
      await opened.transaction(async ({ native }) => {
        await expect(bundle.tallyman.enqueue(any, {}, { tx: native as Queryable })).rejects.toMatchObject({
          code: 'BAD_OPTION',
          message: expect.stringContaining('tallyman/'),
        });
      });
      expect(await jobsOf(bundle)).toEqual([]);
    });
  });
}
