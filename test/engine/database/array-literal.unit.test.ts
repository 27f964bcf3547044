import fc from 'fast-check';
import pg from 'pg';
import { expect, test } from 'vitest';
import { plainArray, textArray } from '../../../src/engine/database/array-literal.ts';

/** Reads a text[] as the driver does, which takes an unquoted `null` for a text: PostgreSQL reads it as NULL. */
const read = (pg.types.getTypeParser as (oid: number) => (literal: string) => string[])(1009);

test('plain values are written as they are', () => {
  expect(plainArray([1, -2, 'deadbeef', '2026-03-01T12:00:00.000+01:00', true, null, 4])).toBe(
    '{1,-2,deadbeef,2026-03-01T12:00:00.000+01:00,true,null,4}',
  );
});

test('a null in front, in the middle and at the end keeps its place', () => {
  expect(plainArray([null, 1, null, 2, null])).toBe('{null,1,null,2,null}');
  expect(textArray([null, 'a', null])).toBe('{null,"a",null}');
});

test('no values are an empty array; nothing but nulls is null', () => {
  expect([plainArray([]), textArray([])]).toEqual(['{}', '{}']);
  expect([plainArray([null, null]), textArray([null])]).toEqual([null, null]);
});

test('what an array literal would read as something else is quoted', () => {
  const odd = ['', 'null', 'NULL', '{', '}', ',', '"', '\\', '\\"', ' a ', '\n', 'ä', "'"];
  expect(textArray(odd)).toBe('{"","null","NULL","{","}",",","\\"","\\\\","\\\\\\""," a ","\n","ä","\'"}');
  expect(read(textArray(odd) ?? '')).toEqual(odd);
});

test('any texts come back as they were, however often each occurs', () => {
  const text = fc.oneof(
    fc.constantFrom('', 'null', '"', '\\', '{}'),
    fc.string({ unit: 'binary', maxLength: 20 }),
  );
  fc.assert(
    fc.property(fc.array(text, { maxLength: 10 }), (values) => {
      expect(read(textArray([...values, ...values]) ?? '')).toEqual([...values, ...values]);
    }),
  );
});
