import { describe, expect, it } from 'vitest';
import {
  builtInTemplate,
  filled,
  palettes,
  readTemplate,
  renderLabel,
  samplePromotion,
  sampleValues,
  standardSizes,
} from '../../../../src/apps/labels/render/index.ts';
import { layLine } from '../../../../src/apps/labels/render/layout.ts';
import type { Lettering } from '../../../../src/apps/labels/render/lettering.ts';
import { breakLines } from '../../../../src/apps/labels/render/lines.ts';
import { decodePng } from '../../../../src/apps/labels/render/png.ts';
import { isPlain } from '../../../../src/apps/labels/render/text.ts';
import { FontNeeded, loadFont, wideFontOf } from '../../../../src/apps/labels/render/wide-fonts.ts';
import { panel, svg } from './support.ts';

const letters: Lettering = { size: 20, weight: 'regular' };

/** With the fonts that it turns out to need. */
async function laid(text: string, language = '') {
  for (;;) {
    try {
      return layLine(text, { ...letters, language });
    } catch (error) {
      if (!(error instanceof FontNeeded)) throw error;
      await loadFont(error);
    }
  }
}
const indices = async (text: string, language?: string) =>
  (await laid(text, language)).glyphs.map(({ index }) => index);

const names = {
  arabic: 'حليب كامل الدسم طازج',
  persian: 'می\u200cخواهم پنیر تازه گچپژ',
  hebrew: 'חלב טרי מלא',
  chinese: '有机全脂鲜牛奶',
  traditional: '有機鮮奶買一送一',
  japanese: '有機牛乳 ガラス瓶入り',
  korean: '유기농 전지 우유',
};

describe('Letters beyond Latin', () => {
  it.each(Object.entries(names))('LBL-11 a name in %s is drawn, no letter as a box', async (_, name) => {
    for (const weight of ['normal', 'bold'] as const) {
      const glyphs = await laid(name);
      expect(glyphs.glyphs.every(({ index }) => index !== 0)).toBe(true);
      const template = readTemplate(
        svg(
          `<tally-text x="2" y="40" width="290" font-size="24" font-weight="${weight}">{{name}}</tally-text>`,
        ),
      );
      const { pixels } = decodePng((await renderLabel(template, { name }, panel)).png);
      expect(pixels.filter((pixel) => pixel === 0).length).toBeGreaterThan(200);
    }
  });

  it('LBL-11 Arabic letters are joined: a letter has another form alone than within a word', async () => {
    const [alone] = await indices('ب');
    const word = await indices('ببب');
    expect(new Set([...word, alone]).size).toBe(4);
  });

  it('LBL-11 runs from right to left, numbers and Latin within it from left to right', async () => {
    const hebrew = await indices('אבג');
    const [first] = await indices('א');
    expect(hebrew.at(-1)).toBe(first);
    const mixed = await laid('אב 123');
    const digits = await indices('123');
    expect(mixed.glyphs.slice(0, 3).map(({ index }) => index)).toEqual(digits);
    // In a store whose language runs from right to left, also a text that begins with Latin letters.
    const latinFirst = 'Cola אב';
    expect((await laid(latinFirst, 'he-IL')).glyphs[0]?.index).not.toBe(
      (await laid(latinFirst, 'en')).glyphs[0]?.index,
    );
  });

  it('LBL-11 brackets are mirrored in a text from right to left', async () => {
    const [opening] = await indices('(');
    expect((await indices('(אב)'))[0]).toBe(opening);
  });

  it('LBL-11 a text from right to left begins at the right of its area', async () => {
    const template = readTemplate(
      svg('<tally-text x="10" y="40" width="280" font-size="24">{{name}}</tally-text>'),
    );
    const { pixels } = decodePng((await renderLabel(template, { name: 'חלב' }, panel)).png);
    const inked = [...pixels.keys()].filter((at) => pixels[at] === 0).map((at) => at % panel.width);
    expect(Math.min(...inked)).toBeGreaterThan(200);
    expect(Math.max(...inked)).toBeLessThanOrEqual(290);
  });

  it('LBL-11 Japanese has its own forms of characters that Chinese writes, too', async () => {
    await laid('直');
    await laid('直', 'ja-JP');
    const code = '直'.codePointAt(0) ?? 0;
    expect(wideFontOf(code, 'regular', false)?.script).toBe('chinese');
    expect(wideFontOf(code, 'regular', true)?.script).toBe('japanese');
  });

  it('LBL-11 symbols of currencies are drawn, too', async () => {
    const template = readTemplate(
      svg('<tally-price value="{{price}}" x="4" y="120" width="280" font-size="90"/>'),
    );
    for (const [currency, locale] of [
      ['KWD', 'ar-KW'],
      ['ILS', 'he-IL'],
      ['JPY', 'ja-JP'],
      ['CNY', 'zh-CN'],
    ] as const)
      await renderLabel(template, { price: '12', currency, locale }, panel);
  });
});

describe('Missing glyphs', () => {
  const template = readTemplate(svg('<tally-text x="4" y="40" font-size="20">{{name}}</tally-text>'));

  it.each(['Cake 🎂', 'ไทย', '𠮷'])(
    'LBL-11 %s is refused, and the error names the character',
    async (name) => {
      await expect(renderLabel(template, { name }, panel)).rejects.toThrow(
        /no glyph for ".+" \(U\+[0-9A-F]{4,6}\)/,
      );
    },
  );

  it("LBL-11 SVG's own text has the Latin font alone, and says what has more", async () => {
    const own = readTemplate(svg('<text x="4" y="40" id="漢">{{name}}</text>'));
    await expect(renderLabel(own, { name: '牛奶' }, panel)).rejects.toThrow(/<tally-text> knows/);
    await renderLabel(own, { name: 'Milk' }, panel);
  });

  it('LBL-6 what is taken for plain without a look is in the bundled font', () => {
    for (const [first, last] of [
      [0x20, 0x7e],
      [0xa0, 0xac],
      [0xae, 0x148],
      [0x14a, 0x17e],
      [0x2010, 0x2015],
      [0x2018, 0x201e],
    ] as const)
      for (let code = first; code <= last; code += 1)
        expect(isPlain(`${String.fromCodePoint(code)}Ж`, 'regular')).toBe(true);
  });
});

describe('Lines', () => {
  const lines = (text: string, width: number, language = 'de-DE', most = 4) =>
    breakLines(text, { ...letters, language }, { width, most, hyphenate: true });

  it('LBL-11 a word that is too long is split where its language splits it', () => {
    expect(lines('Vollkornbrotbackmischung', 150)).toEqual(['Vollkornbrot-', 'backmischung']);
    expect(lines('Extraordinarily', 90, 'en-US')).toEqual(['Extraor-', 'dinarily']);
  });

  it('LBL-11 soft hyphens say where, and are not shown elsewhere', () => {
    expect(lines('Vollkornbrotback\u00admischung', 180)).toEqual(['Vollkornbrotback-', 'mischung']);
    expect(lines('Brot\u00adback', 180)).toEqual(['Brotback']);
  });

  it('LBL-11 a name with soft hyphens is drawn as one without where it fits', async () => {
    const template = readTemplate(
      svg('<tally-text x="4" y="40" width="280" font-size="20">{{name}}</tally-text>'),
    );
    const marked = await renderLabel(template, { name: 'Brot\u00adback\u00admischung' }, panel);
    expect(marked.hash).toBe((await renderLabel(template, { name: 'Brotbackmischung' }, panel)).hash);
  });

  it('LBL-11 Chinese and Japanese break between characters, but not before a full stop or a small kana', async () => {
    await laid('有机全脂鲜牛奶，玻璃瓶装。');
    const broken = lines('有机全脂鲜牛奶，玻璃瓶装。', 7 * 20, 'zh-CN');
    expect(broken).toEqual(['有机全脂鲜牛', '奶，玻璃瓶装。']);
  });

  it('LBL-11 a percentage is never cut: neither between lines nor at the end', () => {
    expect(lines('Sonderpreis -28 %', 130, 'de-DE', 2)).toEqual(['Sonderpreis', '-28 %']);
    for (let width = 60; width < 400; width += 7)
      for (const text of ['Angebot der Woche -28 %', 'Nur heute: 33% Rabatt auf alles', '%50 indirim'])
        for (const most of [1, 2]) {
          const shown = lines(text, width, 'de-DE', most);
          expect(shown.some((line) => /-28 %|33%|%50/.test(line))).toBe(true);
        }
  });
});

describe('The built-in label of a promotion', () => {
  const contents = async (values: Record<string, string>, size: { width: number; height: number }) => {
    const template = readTemplate(builtInTemplate(size));
    return filled(template, { values, palette: 'bw' });
  };

  it('LBL-11 has a unit price of its own, or none: never that of the old price', async () => {
    for (const size of standardSizes) {
      const { promoUnitPrice: _, ...without } = samplePromotion;
      const own = await contents(samplePromotion, size);
      const other = await contents({ ...samplePromotion, promoUnitPrice: '9.99' }, size);
      const none = await contents(without, size);
      const oldUnitPrice = await contents({ ...without, unitPrice: '7.77' }, size);
      expect(other).not.toBe(own);
      expect(none.length).toBeLessThan(own.length);
      expect(oldUnitPrice).toBe(none);
    }
  });

  it('LBL-11 shows by how many percent it is reduced, and the old price whole, whatever its length', async () => {
    for (const size of standardSizes)
      for (const price of ['1.79', '1234567.89', '999999999999.99']) {
        const values = { ...samplePromotion, price };
        const template = builtInTemplate(size);
        const shown = await contents(values, size);
        // Without the element the picture has less: it was there. That it was cut would have been an error (cut="no").
        const withoutOld = template.replace(/^.*line-through.*$/m, '');
        const withoutPercent = template.replace(/^.*\|off.*$/m, '');
        for (const less of [withoutOld, withoutPercent]) {
          const filledLess = await filled(readTemplate(less), { values, palette: 'bw' });
          expect(filledLess.length).toBeLessThan(shown.length);
        }
      }
  });

  it('LBL-11 a text that may not be cut and does not fit is refused', async () => {
    const template = readTemplate(
      svg('<tally-text x="4" y="40" width="20" font-size="20" cut="no">{{price|money}}</tally-text>'),
    );
    const values = { ...sampleValues, price: '999999999999.99' };
    await expect(renderLabel(template, values, panel)).rejects.toThrow(/may not be cut/);
  });

  it.each(standardSizes.filter(({ width }) => width >= 384))(
    'LBL-11 bars have at least two pixels a module on $width × $height',
    async ({ width, height }) => {
      for (const palette of palettes) {
        const panel = { width, height, palette };
        const image = await renderLabel(readTemplate(builtInTemplate(panel)), sampleValues, panel);
        const { pixels } = decodePng(image.png);
        const [, x = '0', y = '0', boxWidth = '0', boxHeight = '0'] =
          /<tally-barcode [^>]*x="(\d+)" y="(\d+)" width="(\d+)" height="(\d+)"/.exec(
            builtInTemplate(panel),
          ) ?? [];
        const row = (Number(y) + Math.floor(Number(boxHeight) / 3)) * width;
        const dark = pixels.subarray(row + Number(x), row + Number(x) + Number(boxWidth));
        const runs = [...dark].join('').match(/0+|1+/g)?.slice(1, -1) ?? [];
        expect(runs.length).toBe(59);
        expect(Math.min(...runs.map((run) => run.length))).toBeGreaterThanOrEqual(2);
      }
    },
  );

  it('LBL-11 every size, palette and sort of product can be drawn', async () => {
    const sorts = [
      sampleValues,
      samplePromotion,
      { ...samplePromotion, name: names.chinese, currency: 'CNY', locale: 'zh-CN' },
      { ...samplePromotion, name: names.arabic, currency: 'SAR', locale: 'ar-SA' },
      { ...samplePromotion, name: 'Donaudampfschifffahrtsgesellschaftskapitän'.repeat(3) },
    ];
    for (const { width, height } of [
      ...standardSizes,
      { width: 250, height: 122 },
      { width: 152, height: 152 },
    ])
      for (const palette of palettes)
        for (const values of sorts) {
          const panel = { width, height, palette };
          expect((await renderLabel(readTemplate(builtInTemplate(panel)), values, panel)).panel).toEqual(
            panel,
          );
        }
  });
});
