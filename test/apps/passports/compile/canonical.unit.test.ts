import { createHash } from 'node:crypto';
import rfc8785 from 'canonicalize';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  canonical,
  canonicalBytes,
  hashJson,
  type Json,
  parseCanonical,
  setSha256,
  sha256Hex,
} from '../../../../src/apps/passports/compile/index.ts';

const integer = fc.maxSafeInteger();
const unicode = fc.string({ unit: 'grapheme' });
const ascii = fc.string({ unit: 'grapheme-ascii' });

const jsonWith = (key: fc.Arbitrary<string>): fc.Arbitrary<Json> =>
  fc.letrec<{ json: Json }>((tie) => ({
    json: fc.oneof(
      { depthSize: 'small' },
      fc.constant(null),
      fc.boolean(),
      integer,
      unicode,
      fc.array(tie('json')),
      fc.dictionary(key, tie('json')),
    ),
  })).json;

/** For comparisons: the parser makes objects without prototype. */
const plain = (json: Json): unknown => JSON.parse(JSON.stringify(json));

describe('BPC-4: canonical JSON', () => {
  test('BPC-4: the fixture has its hash', () => {
    expect(hashJson({ b: 2, a: 1 })).toBe('43258cff783fe7036d8a43033f830adfc60ec037382473548ac742b888292777');
  });

  test('BPC-4: with ASCII keys the bytes are those of an RFC 8785 library', () => {
    fc.assert(
      fc.property(jsonWith(ascii), (json) => {
        expect(canonical(json)).toBe(rfc8785(json));
      }),
      { numRuns: 1000 },
    );
  });

  test('BPC-4: what is written is read back as it was, and written the same again', () => {
    fc.assert(
      fc.property(jsonWith(unicode), (json) => {
        const text = canonical(json);
        const again = parseCanonical(text);
        expect(plain(again)).toEqual(plain(json));
        expect(canonical(again)).toBe(text);
      }),
      { numRuns: 1000 },
    );
  });

  test('BPC-4: keys are in the order of their UTF-8 bytes, astral characters too', () => {
    expect(canonical({ '\u{1f50b}': 1, '\uff5e': 2 })).toBe('{"\uff5e":2,"\u{1f50b}":1}');
    const key = fc.string({
      unit: fc.constantFrom('a', 'é', '\ud7ff', '\ue000', '\uffff', '\u{10000}', '\u{10ffff}'),
    });
    fc.assert(
      fc.property(fc.uniqueArray(key), (keys) => {
        const written = Object.keys(
          JSON.parse(canonical(Object.fromEntries(keys.map((each) => [`k${each}`, 1])))),
        );
        const byBytes = keys
          .map((each) => `k${each}`)
          .sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
        expect(written).toEqual(byBytes);
      }),
    );
  });

  test.each([
    ['a float', 1.5],
    ['not a number', Number.NaN],
    ['infinity', Number.POSITIVE_INFINITY],
    ['2^53', 2 ** 53],
    ['a bigint', 1n],
    ['undefined', undefined],
    ['a date', new Date(0)],
    ['a map', new Map()],
    ['a lone surrogate', '\ud800'],
    ['a lone surrogate in a key', { '\udc00': 1 }],
    ['a function', () => 1],
  ])('BPC-4: %s is refused with the one error, and its place', (_, value) => {
    const refused = { code: 'CANONICAL_JSON_INVALID', message: expect.stringContaining('/list/0') };
    expect(() => canonical({ list: [value] } as Json)).toThrow(expect.objectContaining(refused));
  });

  test('BPC-4: payloads have ASCII keys', () => {
    expect(() => canonicalBytes({ ü: 1 })).toThrow(
      expect.objectContaining({ code: 'CANONICAL_JSON_INVALID' }),
    );
  });

  test.each([
    ['a doubled key', '{"a":1,"a":1}'],
    ['a doubled key in disguise', '{"a":1,"\\u0061":1}'],
    ['a float', '[1.5]'],
    ['an exponent', '[1e3]'],
    ['minus zero', '[-0]'],
    ['2^53', '[9007199254740992]'],
    ['a lone surrogate', '["\\ud800"]'],
    ['white space', '[1, 2]'],
    ['keys in another order', '{"b":1,"a":2}'],
    ['a longer escape', '["\\u0041"]'],
    ['a leading zero', '[01]'],
    ['a control character', '["\u0001"]'],
    ['an unknown escape', '["\\x"]'],
    ['an open string', '"abc'],
    ['an open list', '[1'],
    ['more after the end', '1 2'],
    ['nothing', ''],
    ['a very deep list', '['.repeat(10_000)],
  ])('BPC-4: a text with %s is refused', (_, text) => {
    expect(() => parseCanonical(text)).toThrow(expect.objectContaining({ code: 'CANONICAL_JSON_INVALID' }));
  });

  test('a key __proto__ is a key like any other', () => {
    const text = '{"__proto__":{"polluted":1}}';
    expect(canonical(parseCanonical(text))).toBe(text);
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
  });

  test('SHA-256 may be the platform’s, if it is SHA-256', () => {
    const data = new TextEncoder().encode('battery');
    const before = sha256Hex(data);
    setSha256((bytes) => createHash('sha256').update(bytes).digest());
    expect(sha256Hex(data)).toBe(before);
    expect(() => setSha256((bytes) => createHash('sha512-256').update(bytes).digest())).toThrow('SHA-256');
    expect(sha256Hex(data)).toBe(before);
  });
});
