import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  filled,
  readTemplate,
  renderLabel,
  sampleValues,
  TemplateError,
} from '../../../../src/apps/labels/render/index.ts';
import { breakLines } from '../../../../src/apps/labels/render/lines.ts';
import { colours, palettes } from '../../../../src/apps/labels/render/panel.ts';
import { decodePng } from '../../../../src/apps/labels/render/png.ts';
import { fillTemplate } from '../../../../src/apps/labels/render/template.ts';
import { drawable, widthOf } from '../../../../src/apps/labels/render/text.ts';
import { FontNeeded, loadFont } from '../../../../src/apps/labels/render/wide-fonts.ts';
import { readXml } from '../../../../src/apps/labels/render/xml.ts';
import { panel, svg } from './support.ts';

/** Anything that a column of text can hold, and more: lone surrogates, controls, markup. */
const anyText = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 60 }),
  fc.string({
    unit: fc.constantFrom('<', '>', '&', '"', "'", ']]>', '<!--', '{{', '}}', '\0', '\ud800', 'é', '漢'),
  }),
);

/** A text with characters that no font has is refused; anything else that fails is a bug. */
function onlyMissingGlyphs(error: unknown): undefined {
  expect(error).toBeInstanceOf(TemplateError);
  expect(String(error)).toMatch(/no glyph for/);
}

describe('Any text', () => {
  const template = readTemplate(
    svg(`<text font-family="{{text}}" x="4" y="20" font-size="14" class='{{text|upper}}'>{{text}}<tspan>{{text}}</tspan></text>
      <tally-text x="4" y="40" width="200" lines="3" font-size="14">{{text}}</tally-text>
      <rect fill="{{text}}" width="9" height="9"/>`),
  );

  it('LBL-6 stays text: the filled SVG has the elements of the template and no others', async () => {
    const names = (content: string): string[] => {
      const seen: string[] = [];
      const walk = (element: ReturnType<typeof readXml>): void => {
        if (element.name !== 'path') seen.push(element.name);
        for (const child of element.children) if (typeof child !== 'string') walk(child);
      };
      walk(readXml(content, 100));
      return seen;
    };
    await fc.assert(
      fc.asyncProperty(anyText, async (text) => {
        const svg = await filled(template, { values: { text }, palette: 'bw' }).catch(onlyMissingGlyphs);
        if (svg !== undefined) expect(names(svg)).toEqual(['svg', 'text', 'tspan', 'rect']);
      }),
    );
  });

  it('LBL-6 is rendered, in the colours of the palette alone, or refused for its glyphs', async () => {
    await fc.assert(
      fc.asyncProperty(anyText, fc.constantFrom(...palettes), async (text, palette) => {
        const image = await renderLabel(template, { text }, { ...panel, palette }).catch(onlyMissingGlyphs);
        if (!image) return;
        const { pixels, panel: decoded } = decodePng(image.png);
        expect(decoded).toEqual({ ...panel, palette });
        expect(Math.max(...new Set(pixels))).toBeLessThan(colours[palette].length);
      }),
      { numRuns: 60 },
    );
  });

  it('LBL-6 is broken into lines that fit, with nothing lost but blanks and what the dots stand for', async () => {
    for (const script of ['arabic', 'hebrew', 'japanese', 'korean', 'chinese'] as const)
      await loadFont(new FontNeeded(script, 'regular'));
    fc.assert(
      fc.property(
        anyText,
        fc.integer({ min: 20, max: 300 }),
        fc.integer({ min: 1, max: 5 }),
        (text, width, most) => {
          const drawn = drawable(text).replaceAll('\u00ad', '');
          const lettering = { size: 14, weight: 'regular' } as const;
          const lines = breakLines(drawn, lettering, { width, most });
          expect(lines.length).toBeLessThanOrEqual(most);
          for (const line of lines.filter((line) => [...line].length > 1))
            expect(widthOf(line, lettering)).toBeLessThanOrEqual(width);
          const kept = lines.join('').replace(/[\s\u00a0]/g, '');
          const whole = drawn.replace(/[\s\u00a0]/g, '');
          // A percentage at the end is kept, and what stands before it cut.
          const start = kept.replace(/…[^…]*$/, '');
          expect(
            kept === whole || (lines.length === most && (whole.startsWith(start) || /%/.test(kept))),
          ).toBe(true);
        },
      ),
    );
  });
});

describe('Money and days', () => {
  const shown = (format: string, values: Record<string, string>): string => {
    const filled = fillTemplate(readTemplate(svg(`<text>${format}</text>`)), { values, palette: 'bw' });
    return /<text>(.*)<\/text>/.exec(filled)?.[1]?.replaceAll('\u00a0', ' ') ?? '';
  };

  it.each([
    ['money', '12.5', 'EUR', 'de-DE', '12,50 €'],
    ['money', '1234.5', 'EUR', 'fr-FR', '1 234,50 €'],
    ['money', '1299', 'USD', 'en-US', '$1,299.00'],
    ['money', '1980', 'JPY', 'ja-JP', '¥1,980'],
    ['money', '4.95', 'CHF', 'de-CH', 'CHF 4.95'],
    ['money', '0.1', 'BHD', 'en', 'BHD 0.100'],
    ['amount', '12.5', 'EUR', 'de-DE', '12,50'],
    ['whole', '1234.99', 'EUR', 'de-DE', '1.234'],
    ['decimals', '1234.9', 'EUR', 'de-DE', '90'],
    ['decimals', '1980', 'JPY', 'ja-JP', ''],
    // More digits than a binary number holds exactly.
    ['amount', '999999999999.99', 'EUR', 'en', '999,999,999,999.99'],
    ['money', '999999999999.999', 'KWD', 'en', 'KWD 999,999,999,999.999'],
    // ISO 4217 has places for them, though people of today rarely use these: what is given is shown, not rounded away.
    ['amount', '129.99', 'HUF', 'hu-HU', '129,99'],
    ['amount', '130', 'HUF', 'hu-HU', '130'],
    ['amount', '12.5', 'IQD', 'en', '12.500'],
    ['off', '1.29', 'EUR', 'de-DE', '-35 %'],
    ['off', '1.29', 'SAR', 'ar-SA', '-35%'],
    ['off', '1.99', 'EUR', 'de-DE', ''],
    ['off', '2.50', 'EUR', 'de-DE', ''],
  ])('LBL-6 %s of %s %s in %s', (format, price, currency, locale, wanted) => {
    const values = format === 'off' ? { price: '1.99', offer: price } : { price };
    const text = format === 'off' ? '{{offer|off}}' : `{{price|${format}}}`;
    expect(shown(text, { ...values, currency, locale })).toBe(wanted);
  });

  it.each([
    ['1.005', 'EUR', 'has 3 decimal places; EUR has 2'],
    ['1.500', 'EUR', 'has 3 decimal places; EUR has 2'],
    ['100.0', 'JPY', 'has a decimal place; JPY has none'],
    ['1.2345', 'KWD', 'has 4 decimal places; KWD has 3'],
  ])('LBL-11 the amount %s %s is refused: it would be shown rounded', (price, currency, problem) => {
    for (const format of ['money', 'amount', 'whole', 'decimals'])
      expect(() => shown(`{{price|${format}}}`, { price, currency, locale: 'en' })).toThrow(problem);
  });

  it('LBL-6 a day is that day in every zone, as the locale writes it', () => {
    expect(shown('{{until|day}}', { until: '2026-03-01', locale: 'de-DE' })).toBe('01.03.26');
    expect(shown('{{until|day}}', { until: '2026-03-01', locale: 'sv' })).toBe('2026-03-01');
  });

  it('LBL-6 an empty value stays empty, whatever its format', () => {
    expect(shown('[{{price?|money}}]', { currency: 'EUR', locale: 'de' })).toBe('[]');
    expect(shown('[{{price|money}}]', { ...sampleValues, price: '' })).toBe('[]');
  });
});
