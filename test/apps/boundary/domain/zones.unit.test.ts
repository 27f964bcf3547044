import { describe, expect, test } from 'vitest';
import { slugOf, Zones } from '../../../../src/apps/boundary/domain/zones.ts';

const zones = new Zones(['plant-a', 'plant-b', 'enterprise', 'werk-koln-2']);
const message = (name: string): string => {
  try {
    zones.resolve(name, 'envelope.from_zone');
  } catch (error) {
    expect(error).toMatchObject({
      code: 'INVALID_ARGUMENT',
      reason: 'invalid_field',
      details: { field: 'envelope.from_zone' },
    });
    return (error as Error).message;
  }
  throw new Error(`not refused: ${name}`);
};

describe('zones', () => {
  test.each([
    ['plant-a', 'plant-a'],
    ['Plant A', 'plant-a'],
    ['  PLANT_A ', 'plant-a'],
    ['Plant--A', 'plant-a'],
    ['Enterprise', 'enterprise'],
    ['Werk Köln 2', 'werk-koln-2'],
  ])('BND-13: %j is the zone %s', (name, zone) => {
    expect(zones.resolve(name, 'zone')).toBe(zone);
  });

  test.each([
    ['Plant C', '"Plant C" is not a configured zone; did you mean "plant-a"?'],
    ['enterprize', 'did you mean "enterprise"?'],
    ['工場', '"工場" is not a configured zone'],
    ['', 'envelope.from_zone is missing: expected "plant-a", "plant-b"'],
    ['plant-a\nplant-b', 'is not a configured zone'],
    [`${'x'.repeat(1_000_000)}`, 'is not a configured zone'],
  ])('BND-13: %.20j is refused with the nearest name', (name, expected) => {
    expect(message(name)).toContain(expected);
    expect(message(name).length).toBeLessThan(500);
  });

  test('BND-13: only slugs can be configured; the error says which slug was meant', () => {
    expect(() => new Zones(['Plant A'])).toThrow('such as "plant-a"');
    for (const bad of ['', '-a', 'a-', 'a--b', 'a_b', 'ä', 'x'.repeat(64)])
      expect(() => new Zones([bad])).toThrow('is not a slug');
    expect(slugOf('!!!')).toBe('');
  });
});
