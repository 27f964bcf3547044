import { expect, test } from 'vitest';
import { facts, table } from '../../src/host/cli/output/table.ts';
import { count, printable, truncate, widthOf } from '../../src/host/cli/output/text.ts';
import { duration, fullTime, relativeTime } from '../../src/host/cli/output/time.ts';
import { readableLine } from '../../src/host/process/logger.ts';

const now = new Date('2026-05-04T12:00:00Z');
const at = (ms: number): Date => new Date(now.getTime() + ms);

test.each([
  [0, 'now'],
  [-999, 'now'],
  [-1000, '1 s ago'],
  [-59_999, '59 s ago'],
  [-180_000, '3 min ago'],
  [-7_200_000, '2 h ago'],
  [-172_800_000, '2 d ago'],
  [5_000, 'in 5 s'],
  [90_000, 'in 1 min'],
])('%i ms from now is "%s"', (ms, text) => {
  expect(relativeTime(at(ms), now)).toBe(text);
});

test('times in full', () => {
  expect(fullTime(at(-5000), now)).toBe('2026-05-04 11:59:55.000 UTC (5 s ago)');
  expect(duration(250)).toBe('250 ms');
});

interface Row {
  readonly id: number;
  readonly name: string;
  readonly note: string;
}
const columns = [
  { title: 'ID', value: (row: Row) => row.id, right: true },
  { title: 'NAME', value: (row: Row) => row.name, shrinkTo: 4, leaveOut: 1 },
  { title: 'NOTE', value: (row: Row) => row.note, shrinkTo: 6 },
] as const;
const rows = [
  { id: 7, name: 'short', note: 'a long note about it' },
  { id: 1234, name: '日本語', note: '' },
];

test('a table is aligned, also under wide letters', () => {
  expect(table(columns, rows)).toBe(
    ['  ID  NAME    NOTE', '   7  short   a long note about it', '1234  日本語'].join('\n'),
  );
});

test('a narrow terminal cuts the widest column first, then leaves columns out, and never overflows', () => {
  expect(table(columns, rows, 24)).toBe(
    ['  ID  NAME    NOTE', '   7  short   a long no…', '1234  日本語'].join('\n'),
  );
  expect(table(columns, rows, 17)).toBe(
    ['  ID  NOTE', '   7  a long not…', '1234'].join('\n').replace('…', '…'),
  );
  for (let width = 12; width < 60; width += 1)
    for (const line of table(columns, rows, width).split('\n'))
      expect(widthOf(line)).toBeLessThanOrEqual(width);
});

test('a column that may be left out is, where nothing stands in it', () => {
  const nameless = [{ id: 1, name: '', note: 'x' }];
  expect(table(columns, nameless)).toBe('ID  NOTE\n 1  x');
});

test('facts are aligned, and what is not known is not there', () => {
  expect(
    facts([
      ['id', 7],
      ['lane', null],
      ['status', 'QUEUED'],
    ]),
  ).toBe('id      7\nstatus  QUEUED');
});

test('text', () => {
  expect(printable('a\u001b[2Jb\nc\u202ed')).toBe('a\\u001b[2Jb c\\u202ed');
  expect(truncate('日本語', 5)).toBe('日本…');
  expect(truncate('abc', 3)).toBe('abc');
  expect(truncate('abcd', 3)).toBe('ab…');
  expect(count(1, 'job')).toBe('1 job');
  expect(count(1200, 'job')).toBe('1,200 jobs');
});

test('a line of the log for a person', () => {
  const time = new Date(2026, 4, 4, 9, 8, 7);
  const line = readableLine(
    JSON.stringify({ level: 40, time: time.toISOString(), msg: 'gone', queue: 'dock', why: 'a b' }),
  );
  expect(line).toBe('09:08:07 warn  gone  queue=dock  why="a b"');
});
