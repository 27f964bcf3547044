import { describe, expect, test } from 'vitest';
import { linesIn } from '../../../src/apps/boundary/commands/fact-lines.ts';
import { canonicalText, deepest } from '../../../src/apps/boundary/domain/json.ts';

const line = (object: string): string => `{"message_id": "a", "object": ${object}}`;
const read = (text: string) => linesIn(Buffer.from(text), 'facts.jsonl');

describe('facts append --lines', () => {
  test('BND-3: lines keep their numbers, and each object is the one that was written', () => {
    const objects = [
      '{"b": 1.0, "a": [1e2, -0]}',
      '0.10000000000000001',
      '"é"',
      '"9007199254740993"',
      '1e21',
    ];
    const found = read(`\n${objects.map(line).join('\r\n\r\n')}\n`);
    expect(found.map(({ number }) => number)).toEqual([2, 4, 6, 8, 10]);
    const written = found.map(({ value }) => canonicalText(JSON.stringify(value.object), 'object'));
    expect(written).toEqual(objects.map((object) => canonicalText(object, 'object')));
  });

  test.each([
    ['an integer that no double holds', line('9007199254740993'), 'has the integer 9007199254740993'],
    ['a number beyond all doubles', line('1e400'), 'has the number 1e400, which no double can hold'],
    ['a member of the object that is there twice', line('{"a": 1, "a": 2}'), 'has the member "a" twice'],
    [
      'a member of the line that is there twice',
      '{"object": 1, "object": 2}',
      'has the member "object" twice',
    ],
    ['a lone surrogate', line('"\\ud800"'), 'has a lone surrogate'],
    ['what is no JSON', line('1}'), 'is not JSON'],
    ['what is no object', '[1]', 'is not a JSON object'],
  ])('BND-3: %s is refused with its line', (_, bad, why) => {
    const refused = expect(() => read(`${line('1')}\n\n${bad}\n`));
    refused.toThrow(`line 3: ${why}`);
    expect(() => read(bad)).toThrow('; nothing was appended');
  });

  test('BND-3: the object may be as deep as any object of a fact', () => {
    const nested = (levels: number): string => `${'['.repeat(levels)}${']'.repeat(levels)}`;
    const object = nested(deepest + 1);
    expect(canonicalText(object, 'object')).toBe(object);
    expect(read(line(object))).toHaveLength(1);
    expect(() => read(line(nested(deepest + 2)))).toThrow('is nested deeper than');
  });

  test('BND-3: what is not UTF-8 is refused', () => {
    const bytes = Buffer.concat([Buffer.from('{"object": "'), Buffer.from([0xff]), Buffer.from('"}')]);
    expect(() => linesIn(bytes, 'facts.jsonl')).toThrow('facts.jsonl is not UTF-8; nothing was appended');
  });
});
