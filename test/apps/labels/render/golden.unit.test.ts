/**
 * What labels look like, to the pixel. After a change that is meant: look at the images, then
 * `UPDATE_GOLDEN=1 npx vitest run test/apps/labels/render/golden.unit.test.ts` writes them anew.
 */
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  builtInTemplate,
  type LabelImage,
  type Panel,
  palettes,
  previewSheets,
  readTemplate,
  renderLabel,
  samplePromotion,
  sampleValues,
  standardSizes,
} from '../../../../src/apps/labels/render/index.ts';
import { hashOf } from '../../../../src/apps/labels/render/pixels.ts';
import { decodePng } from '../../../../src/apps/labels/render/png.ts';
import { panel, svg } from './support.ts';

const golden = join(import.meta.dirname, 'golden');

function compare(image: LabelImage, name: string): void {
  const file = join(golden, `${name}.png`);
  if (process.env.UPDATE_GOLDEN === '1') writeFileSync(file, image.png);
  const wanted = decodePng(readFileSync(file));
  const made = decodePng(image.png);
  const differing = made.pixels.reduce(
    (count, pixel, at) => count + (pixel === wanted.pixels[at] ? 0 : 1),
    0,
  );
  if (differing === 0 && made.pixels.length === wanted.pixels.length) return;
  const actual = join(mkdtempSync(join(tmpdir(), 'tallyman-golden-')), `${name}.png`);
  writeFileSync(actual, image.png);
  expect.fail(`${differing} pixels differ from ${file}; what was made lies at ${actual}`);
}

const values = { plain: sampleValues, promotion: samplePromotion };
const scripts = {
  arabic: { ...samplePromotion, name: 'حليب كامل الدسم 3.8% (زجاجة) Cola', currency: 'SAR', locale: 'ar-SA' },
  chinese: { ...sampleValues, name: '有机全脂鲜牛奶 3.8% 玻璃瓶装 1升', currency: 'CNY', locale: 'zh-CN' },
  hebrew: { ...sampleValues, name: 'חלב טרי מלא 3.8% בבקבוק', currency: 'ILS', locale: 'he-IL' },
  japanese: {
    ...sampleValues,
    ...{ name: '有機牛乳 ガラス瓶入り（北海道産）', price: '298', unitPrice: '298' },
    ...{ currency: 'JPY', locale: 'ja-JP', unit: '本' },
  },
  korean: {
    ...sampleValues,
    ...{
      name: '유기농 전지 우유 유리병',
      price: '3980',
      unitPrice: '3980',
      currency: 'KRW',
      locale: 'ko-KR',
    },
  },
  german: { ...samplePromotion, name: 'Donaudampfschifffahrtskapitänsmütze', promoText: 'Nur heute -28 %' },
};

describe('Golden images', () => {
  for (const { width, height } of standardSizes)
    for (const palette of palettes)
      for (const [name, filling] of Object.entries(values))
        it(`LBL-6 the built-in label of ${width}×${height} in ${palette}, ${name}`, async () => {
          const panel: Panel = { width, height, palette };
          const image = await renderLabel(readTemplate(builtInTemplate(panel)), filling, panel);
          compare(image, `${width}x${height}-${palette}-${name}`);
        });

  for (const [name, filling] of Object.entries(scripts))
    it(`LBL-11 the built-in label in ${name}`, async () => {
      const panel: Panel = { width: 200, height: 200, palette: 'bwr' };
      compare(await renderLabel(readTemplate(builtInTemplate(panel)), filling, panel), `200x200-bwr-${name}`);
    });

  it("LBL-6 every element: SVG's own text, shapes, clips, an image, all sorts of barcodes", async () => {
    const dot =
      'iVBORw0KGgoAAAANSUhEUgAAAAIAAAACAgMAAAAP2OW3AAAACVBMVEUAAAD/////AADNXrecAAAADElEQVR4nGOYwKAAAAHUALFDPcAJAAAAAElFTkSuQmCC';
    const template = readTemplate(
      svg(`  <defs><clipPath id="round"><circle cx="40" cy="120" r="30"/></clipPath><g id="mark"><path d="M0 0h10v10z"/></g></defs>
  <text x="10" y="24" font-family="Inter" font-size="18" font-weight="bold">SVG: {{name}}</text>
  <text x="10" y="44" font-size="14"><tspan fill="{{@accent}}">a</tspan> <tspan font-weight="700">b</tspan></text>
  <rect x="10" y="90" width="60" height="60" clip-path="url(#round)" fill="#f00"/>
  <image x="80" y="120" width="20" height="20" href="data:image/png;base64,${dot}"/>
  <use href="#mark" x="110" y="120"/><use href="#mark" x="125" y="120"/>
  <tally-barcode type="code128" value="{{sku}}" x="140" y="50" width="150" height="30" digits="11"/>
  <tally-barcode type="qrcode" value="https://example.com/{{sku}}" x="216" y="80" width="80" height="80"/>
  <tally-text x="140" y="104" width="70" lines="3" font-size="12" line-height="14">{{name}} {{name|upper}} and what is too long ends in dots</tally-text>`),
    );
    const image = await renderLabel(template, { name: 'Żubrówka & <co>', sku: 'A-17' }, panel);
    compare(image, 'every-element');
  });

  it('LBL-6 the hash is of size, palette and pixels', async () => {
    const template = readTemplate(builtInTemplate(panel));
    const image = await renderLabel(template, sampleValues, panel);
    const { pixels, panel: decoded } = decodePng(image.png);
    expect(decoded).toEqual(panel);
    expect(hashOf(pixels, decoded)).toBe(image.hash);
    const other = await renderLabel(template, sampleValues, { ...panel, palette: 'bw' });
    expect(other.hash).not.toBe(image.hash);
  });

  it('LBL-6 preview sheets are A4 at 300 dpi, labels at their physical size', async () => {
    const [sheet, ...more] = await previewSheets({
      template: (size) => (size.width === 200 ? builtInTemplate(size) : undefined),
    });
    expect(more).toEqual([]);
    expect([sheet?.readUInt32BE(16), sheet?.readUInt32BE(20)]).toEqual([2480, 3508]);
    expect(sheet?.readUInt32BE(sheet.indexOf('pHYs') + 4)).toBe(11_811);
  });
});
