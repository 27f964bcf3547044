import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const code = `
  import { builtInTemplate, palettes, readTemplate, renderLabel, samplePromotion, standardSizes } from './render/index.ts';
  const hashes = [];
  for (const { width, height } of standardSizes)
    for (const palette of palettes) {
      const panel = { width, height, palette };
      hashes.push((await renderLabel(readTemplate(builtInTemplate(panel)), samplePromotion, panel)).hash);
    }
  const panel = { width: 100, height: 60, palette: 'bw' };
  const template = readTemplate('<svg xmlns="http://www.w3.org/2000/svg" width="100" height="60"><text x="2" y="20" font-family="sans-serif" font-size="16">{{day|day}}</text><tally-text x="2" y="50" font-size="16">{{day|day}}</tally-text></svg>');
  for (const locale of ['de-DE', 'en-US', 'sv']) hashes.push((await renderLabel(template, { day: '2026-03-31', locale }, panel)).hash);
  const label = { width: 296, height: 160, palette: 'bw' };
  for (const [name, currency, locale] of [['حليب كامل الدسم', 'SAR', 'ar-SA'], ['有機牛乳 ガラス瓶', 'EUR', 'ja-JP'], ['חלב טרי', 'ILS', 'he-IL'], ['Donaudampfschifffahrtskapitän', 'EUR', 'de-DE']])
    hashes.push((await renderLabel(readTemplate(builtInTemplate(label)), { ...samplePromotion, name, currency, locale }, label)).hash);
  console.log(JSON.stringify(hashes));
`;

/** A process of its own, in another language and time zone than this one. */
const hashesOf = (environment: Record<string, string>): unknown =>
  JSON.parse(
    execFileSync(process.execPath, ['--input-type=module', '--eval', code], {
      cwd: join(import.meta.dirname, '../../../../src/apps/labels'),
      env: { PATH: process.env.PATH ?? '', ...environment },
      encoding: 'utf8',
    }),
  );

it('LBL-6 the same pixels in every process, language and time zone', () => {
  const here = hashesOf({ LANG: 'de_DE.UTF-8', LC_ALL: 'de_DE.UTF-8', TZ: 'Pacific/Kiritimati' });
  const there = hashesOf({ LANG: 'C', LC_ALL: 'C', TZ: 'Pacific/Pago_Pago', HOME: '/nonexistent' });
  expect(here).toHaveLength(22);
  expect(there).toEqual(here);
  // Eleven hours behind Greenwich and fourteen before it: the day is the day, and each language writes it its own way.
  expect(new Set((here as string[]).slice(15, 18)).size).toBe(3);
});
