import { expect, test } from 'vitest';
import { z } from 'zod';
import { recordOf, text } from '../../src/host/route.ts';

const shape = z.strictObject({ values: recordOf(3, text(4), z.string().max(4).nullable()).optional() });

/** Where, and what is wrong. */
const problemsOf = (values: unknown) =>
  shape.safeParse({ values }).error?.issues.map(({ path, message }) => `${path.join('.')}: ${message}`);

test('SEC-8: a record of a request has a limit, and tells one problem however many it has', () => {
  const many = Object.fromEntries(Array.from({ length: 200_000 }, (_, i) => [`k${i}`, 1]));
  expect(problemsOf(many)).toEqual(['values: must have at most 3 entries, has 200000']);
  expect(problemsOf({ a: 'x', b: 1, c: 1 })).toEqual([
    expect.stringMatching(/^values\.b: .*expected string/),
  ]);
  expect(problemsOf({ a: 'x', toolong: 'y' })).toEqual([
    'values: the name of an entry: must be at most 4 bytes',
  ]);
  for (const junk of [null, [], 'x', 1]) expect(problemsOf(junk)).toEqual(['values: expected an object']);
  const good = { values: { a: 'x', b: null } };
  expect(shape.parse(good)).toEqual(good);
  expect(shape.parse({})).toEqual({});
});

test('API-2: a record of a request is documented with its limit', () => {
  const { properties } = z.toJSONSchema(shape, { io: 'input' });
  expect(properties?.values).toEqual({
    type: 'object',
    propertyNames: { type: 'string', minLength: 1 },
    additionalProperties: { anyOf: [{ type: 'string', maxLength: 4 }, { type: 'null' }] },
    maxProperties: 3,
  });
});
