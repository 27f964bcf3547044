/**
 * Makes the fonts in src/apps/labels/render/fonts that end in .ttf.br, from packages of npm: `node scripts/label-fonts.ts [folder]`.
 * Needed only to take newer fonts; it downloads 120 MB and takes some minutes. Chinese, Japanese and Korean fonts are cut down
 * to the characters of the national standards, which is a third of their size.
 */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { brotliCompressSync, constants } from 'node:zlib';

const folder = process.argv[2] ?? join(import.meta.dirname, '../src/apps/labels/render/fonts');
const packages = {
  Arabic: ['@expo-google-fonts/noto-sans-arabic', '0.4.3'],
  Hebrew: ['@expo-google-fonts/noto-sans-hebrew', '0.4.1'],
  JP: ['@expo-google-fonts/noto-sans-jp', '0.4.3'],
  KR: ['@expo-google-fonts/noto-sans-kr', '0.4.3'],
  SC: ['@expo-google-fonts/noto-sans-sc', '0.4.3'],
} as const;

const range = (first: number, last: number): number[] =>
  Array.from({ length: last - first + 1 }, (_, at) => first + at);
const characters = (first: number, last: number): string => String.fromCodePoint(...range(first, last));

/** Every character of a standard in which two bytes make one. */
function twoByte(encoding: string, leads: readonly number[], trails: readonly number[]): string {
  const decoder = new TextDecoder(encoding);
  const all = leads.flatMap((lead) => trails.map((trail) => decoder.decode(new Uint8Array([lead, trail]))));
  return [...new Set(all)].filter((one) => /^[\u2e80-\u9fff\uf900-\ufaff]$/u.test(one)).join('');
}
const big5Trails = [...range(0x40, 0x7e), ...range(0xa1, 0xfe)];
const sjisTrails = [...range(0x40, 0x7e), ...range(0x80, 0xfc)];

const kept: Partial<Record<keyof typeof packages, string>> = {
  // GB 2312, and the frequent characters of Big5.
  SC: `${twoByte('gb18030', range(0xa1, 0xf7), range(0xa1, 0xfe))}${twoByte('big5', range(0xa4, 0xc6), big5Trails)}`,
  // JIS X 0208.
  JP: `${twoByte('shift_jis', [...range(0x81, 0x9f), ...range(0xe0, 0xea)], sjisTrails)}${characters(0x3000, 0x30ff)}${characters(0x31f0, 0x31ff)}`,
  // All syllables.
  KR: `${characters(0xac00, 0xd7a3)}${characters(0x3130, 0x318f)}${characters(0x3000, 0x303f)}`,
};

const work = mkdtempSync(join(tmpdir(), 'tallyman-fonts-'));
const wanted = Object.values(packages).map(([name, version]) => `${name}@${version}`);
execFileSync('npm', ['install', '--prefix', work, '--no-save', 'subset-font@2.9.0', ...wanted], {
  stdio: 'inherit',
});
const require = createRequire(join(work, 'index.js'));
const subset = require('subset-font') as (
  font: Buffer,
  text: string,
  options: { targetFormat: 'truetype'; noLayoutClosure: boolean },
) => Promise<Buffer>;

for (const [script, [name]] of Object.entries(packages) as [
  keyof typeof packages,
  readonly [string, string],
][])
  for (const weight of ['400Regular', '700Bold']) {
    const whole = readFileSync(join(work, 'node_modules', name, weight, `NotoSans${script}_${weight}.ttf`));
    const text = kept[script];
    const font =
      text === undefined
        ? whole
        : await subset(whole, text, { targetFormat: 'truetype', noLayoutClosure: true });
    const file = `NotoSans${script}-${weight.slice(3)}.ttf.br`;
    const params = {
      [constants.BROTLI_PARAM_QUALITY]: 11,
      [constants.BROTLI_PARAM_LGWIN]: 24,
      [constants.BROTLI_PARAM_SIZE_HINT]: font.length,
    };
    writeFileSync(join(folder, file), brotliCompressSync(font, { params }));
    console.log(file);
  }
