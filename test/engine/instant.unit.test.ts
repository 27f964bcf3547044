import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { formatInstant, parseInstant } from '../../src/engine/instant.ts';

describe('instants', () => {
  test('RFID-2: one spelling, with microseconds, in UTC', () => {
    const spell = (text: string) => formatInstant(parseInstant(text));
    for (const same of [
      '2026-03-01T12:00:00.000001Z',
      '2026-03-01t12:00:00.000001z',
      ' 2026-03-01 13:00:00.0000019+01:00 ',
      '2026-03-01T07:30:00,000001-0430',
      '2026-03-01T14:00:00.000001+02',
    ])
      expect(spell(same)).toBe('2026-03-01T12:00:00.000001Z');
    expect(spell('2026-03-01T12:00:00Z')).toBe('2026-03-01T12:00:00.000000Z');
    expect(spell('1969-12-31T23:59:59.9Z')).toBe('1969-12-31T23:59:59.900000Z');
  });

  test('what the calendar does not have, or has no zone, is refused', () => {
    for (const text of [
      '',
      'now',
      '2026-03-01',
      '2026-03-01T12:00:00',
      '2026-02-30T12:00:00Z',
      '2026-13-01T12:00:00Z',
      '2026-03-01T24:00:00Z',
      '2026-03-01T12:00:60Z',
      '1772366400',
    ])
      expect(() => parseInstant(text), text).toThrow(/is not a time/);
  });

  test('an offset that no zone has is refused; the outermost are read', () => {
    for (const text of ['2026-03-01T12:00:00+25:00', '2026-03-01T12:00:00-1660', '2026-03-01T12:00:00+16'])
      expect(() => parseInstant(text), text).toThrow(/zone that does not exist/);
    expect(formatInstant(parseInstant('2026-03-01T12:00:00+14:00'))).toBe('2026-02-28T22:00:00.000000Z');
    expect(formatInstant(parseInstant('2026-03-01T12:00:00-15:59'))).toBe('2026-03-02T03:59:00.000000Z');
  });

  test('writing and reading are each other’s inverse', () => {
    fc.assert(
      fc.property(fc.integer({ min: -(10 ** 15), max: 8 * 10 ** 15 }), (at) => {
        expect(parseInstant(formatInstant(at))).toBe(at);
      }),
    );
  });
});
