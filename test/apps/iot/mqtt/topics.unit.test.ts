import { expect, test } from 'vitest';
import { flawOf, matches } from '../../../../src/apps/iot/mqtt/topics.ts';

test.each([
  ['a/b', 'a/b', true],
  ['a/b', 'a/b/c', false],
  ['a/+', 'a/b', true],
  ['a/+', 'a/', true],
  ['a/+', 'a', false],
  ['a/+/c', 'a/b/c', true],
  ['a/+/c', 'a/b/d', false],
  ['a/#', 'a', true],
  ['a/#', 'a/b/c/d', true],
  ['a/#', 'ab', false],
  ['#', 'a/b', true],
  ['#', '$SYS/uptime', false],
  ['+/uptime', '$SYS/uptime', false],
  ['$SYS/#', '$SYS/uptime', true],
  ['/+', '/a', true],
  ['+', '/a', false],
])('filter %s, topic %s: %s', (filter, topic, expected) => {
  expect(matches(filter, topic)).toBe(expected);
});

test.each(['', 'a/#/b', 'a#', 'a/b+', 'a+/b', 'a\0b', '$share/g/a', 'x'.repeat(65_536)])(
  'no filter: %s',
  (filter) => {
    expect(flawOf(filter)).toBeTypeOf('string');
  },
);

test.each(['a', '/', '+', '#', 'a/+/b/#', '$SYS/#'])('a filter: %s', (filter) => {
  expect(flawOf(filter)).toBeUndefined();
});
