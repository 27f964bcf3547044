import { expect, test } from 'vitest';
import { type Bundle, engine } from '../support/engine.ts';

/*
 * tallyman.enqueue() for every type that a payload may have in SQL. A literal without a type must stay unambiguous.
 */

const one = `'{"n": 1}'`;

const calls: readonly (readonly [call: string, payload: unknown])[] = [
  [`enqueue('k')`, {}],
  [`enqueue('k', lane => 'l')`, {}],
  [`enqueue('k', ${one})`, { n: 1 }],
  [`enqueue('k'::text, ${one})`, { n: 1 }],
  [`enqueue('k', ${one}, 'q', 1, 'l', '1 hour')`, { n: 1 }],
  [`enqueue(kind => 'k', payload => ${one}, dedupe_key => 'd')`, { n: 1 }],
  [`enqueue('k', ${one}::json)`, { n: 1 }],
  [`enqueue('k', ${one}::jsonb)`, { n: 1 }],
  [`enqueue('k', ${one}::jsonb, lane => 'l', delay => '1 second')`, { n: 1 }],
  [`enqueue('k', jsonb_build_object('n', 1))`, { n: 1 }],
  [`enqueue('k', jsonb_build_array(1, 2))`, [1, 2]],
  [`enqueue('k', to_jsonb('text'::text))`, 'text'],
  [`enqueue('k', 'null'::jsonb)`, null],
  [`enqueue('k', ${one}::text)`, { n: 1 }],
  [`enqueue('k', ${one}::varchar)`, { n: 1 }],
];

async function registered(): Promise<Bundle> {
  const bundle = await engine();
  await bundle.rows(`select tallyman.register_kind('k')`);
  return bundle;
}

test('ENG-9: SQL takes a payload as json, jsonb, text or literal', async () => {
  const bundle = await registered();
  for (const [call, payload] of calls) {
    const [row] = await bundle.rows<{ id: string }>(`select tallyman.${call} as id`);
    expect((await bundle.tallyman.jobs.get(row?.id ?? ''))?.payload, call).toEqual(payload);
  }
});

test('ENG-9: enqueue_many takes json, jsonb, text or literal', async () => {
  const bundle = await registered();
  const jobs = `'[{"kind": "k", "payload": {"n": 1}}]'`;
  for (const type of ['', '::json', '::jsonb', '::text'])
    await bundle.rows(`select id from tallyman.enqueue_many(${jobs}${type}, tenant_id => 'acme')`);
  const { items } = await bundle.tallyman.jobs.list({ tenantId: 'acme' });
  expect(items.map(({ payload }) => payload)).toEqual(Array.from({ length: 4 }, () => ({ n: 1 })));
});

test('ENG-9: parameters without a type work, by position and by name', async () => {
  const bundle = await registered();
  await bundle.rows('select tallyman.enqueue($1, $2)', ['k', '{"n": 1}']);
  await bundle.rows('select tallyman.enqueue(kind => $1, payload => $2, lane => $3)', ['k', { n: 1 }, 'l']);
  await bundle.rows('select tallyman.enqueue($1, $2::jsonb)', ['k', { n: 1 }]);
  const { items } = await bundle.tallyman.jobs.list();
  expect(items.map(({ payload }) => payload)).toEqual([1, 2, 3].map(() => ({ n: 1 })));
});

test('ENG-9: what is no JSON, and no payload, is refused in every type', async () => {
  const bundle = await registered();
  const codeOf = async (call: string) => bundle.rows(`select tallyman.${call}`).catch(({ code }) => code);
  expect(await codeOf(`enqueue('k', 'not JSON')`)).toBe('22P02');
  for (const type of ['json', 'jsonb', 'text'])
    expect(await codeOf(`enqueue('k', null::${type})`)).toBe('TM002');
  expect((await bundle.tallyman.jobs.list()).items).toEqual([]);
});
