import canonicalize from 'canonicalize';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { canonicalText, deepest } from '../../../../src/apps/boundary/domain/json.ts';

const canonical = (text: string): string => canonicalText(text, 'object_json');
const refused = (text: string): string => {
  try {
    canonical(text);
  } catch (error) {
    expect(error).toMatchObject({ code: 'INVALID_ARGUMENT', details: { field: 'object_json' } });
    return (error as Error).message;
  }
  throw new Error(`not refused: ${text}`);
};

describe('canonical JSON of objects', () => {
  test('BND-3: any JSON value has the text of RFC 8785, however it was written', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.constantFrom(0, 2, '\t', ' \r\n'), (value, indent) => {
        const text = JSON.stringify(value, null, indent);
        fc.pre(text.isWellFormed() && !/\\ud[89a-f]/i.test(text));
        expect(canonical(text)).toBe(canonicalize(JSON.parse(text)));
      }),
      { numRuns: 2000 },
    );
  });

  test('BND-3: the canonical text of a canonical text is the same', () => {
    fc.assert(
      fc.property(fc.json(), (text) => {
        fc.pre(!/\\ud[89a-f]/i.test(text) && text.isWellFormed());
        const once = canonical(text);
        expect(canonical(once)).toBe(once);
      }),
    );
  });

  test.each([
    ['the order of members', '{"b":1,"a":{"d":2,"c":3}}', '{"a":{"c":3,"d":2},"b":1}'],
    ['names that look like numbers', '{"10":1,"9":2,"a":3}', '{"10":1,"9":2,"a":3}'],
    ['names that are special to JavaScript', '{"__proto__":1,"a":2}', '{"__proto__":1,"a":2}'],
    ['escapes', '{"\\u0061":"\\u00e9\\/\\n"}', '{"a":"é/\\n"}'],
    ['a brace in a string', '{"a":"}\\"]\\\\","b":[]}', '{"a":"}\\"]\\\\","b":[]}'],
    ['ways to write a number', '[1.0,1e2,-0,0.10,1E-7]', '[1,100,0,0.1,1e-7]'],
    ['17 digits, as many writers print a double', '[0.10000000000000001]', '[0.1]'],
    [
      'that a double prints fewer digits than it has',
      '[9007199254740993.0,9007199254740992,-123456789012345680000]',
      '[9007199254740992,9007199254740992,-123456789012345680000]',
    ],
    ['the order of UTF-16 units', '{"\uff5e":1,"\u{1f50b}":2}', '{"\u{1f50b}":2,"\uff5e":1}'],
    ['a backslash before what looks like an escape', '{"b":"\\\\ud800","a":1}', '{"a":1,"b":"\\\\ud800"}'],
    ['a value that is no object', ' "x" ', '"x"'],
  ])('BND-3: %s does not count', (_, text, expected) => {
    expect(canonical(text)).toBe(expected);
  });

  test.each([
    ['a member that is there twice', '{"a":{"b":1,"c":2,"b":1}}', 'has the member "b" twice (character 19)'],
    ['the same, in disguise', '{"a":1,"\\u0061":2}', 'has the member "a" twice'],
    ['an integer beyond 2^53', '{"id":9007199254740993}', 'would change to 9007199254740992 (character 7)'],
    [
      '2^63, which a double holds but does not print',
      '[9223372036854775808]',
      'change to 9223372036854776000',
    ],
    ['a negative one', '[-12345678901234567890]', 'send it as a string'],
    ['a number beyond all doubles', '[1e400]', 'has the number 1e400, which no double can hold'],
    ['a long one', `[${'9'.repeat(400)}]`, 'which no double can hold'],
    ['a lone surrogate', '["\\ud800"]', 'lone surrogate'],
    ['a lone surrogate that is no escape', '["\ud800"]', 'lone surrogate'],
    ['a lone surrogate in a name', '{"\\udc00":1}', 'lone surrogate'],
    ['no JSON', '{a:1}', 'is not JSON'],
    ['more behind the value', '1 2', 'is not JSON'],
    ['nothing', '', 'is not JSON'],
  ])('BND-13: %s is refused, and the message says where', (_, text, message) => {
    expect(refused(text)).toContain(message);
  });

  test('BND-13: what is nested too deeply is refused, and a long string is not', () => {
    const nested = (levels: number) => '['.repeat(levels) + ']'.repeat(levels);
    expect(canonical(nested(deepest + 1))).toBe(nested(deepest + 1));
    expect(refused(nested(deepest + 2))).toContain('nested deeper than 100 levels');
    expect(refused(nested(5_000))).toContain('nested deeper');
    expect(refused(`{"b":1,"a":${nested(200_000)}}`)).toContain('nested deeper');
    expect(refused(`[${nested(200_000)},{"b":1,"a":2}]`)).toContain('nested deeper');
    const long = JSON.stringify('"\\x'.repeat(300_000));
    expect(canonical(long)).toBe(long);
  });
});
