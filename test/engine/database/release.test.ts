import { expect, test } from 'vitest';
import { compareReleases } from '../../../src/engine/database/release.ts';

test('releases in the order of semver.org, §11', () => {
  const ascending = [
    '0.9.0',
    '0.10.0',
    '1.0.0-alpha',
    '1.0.0-alpha.1',
    '1.0.0-alpha.beta',
    '1.0.0-beta',
    '1.0.0-beta.2',
    '1.0.0-beta.11',
    '1.0.0-rc.1',
    '1.0.0',
    '1.0.1',
    '2.0.0',
    '10.0.0',
  ];
  for (const [i, a] of ascending.entries())
    for (const [j, b] of ascending.entries())
      expect({ a, b, order: Math.sign(compareReleases(a, b)) }).toEqual({ a, b, order: Math.sign(i - j) });
  expect(compareReleases('1.0.0+build.1', '1.0.0+build.2')).toBe(0);
  expect(() => compareReleases('latest', '1.0.0')).toThrow('"latest" is not a version');
});
