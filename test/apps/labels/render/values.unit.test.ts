import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readTemplate, renderLabel, sampleValues } from '../../../../src/apps/labels/render/index.ts';
import { colours, palettes } from '../../../../src/apps/labels/render/panel.ts';
import { decodePng } from '../../../../src/apps/labels/render/png.ts';
import { fillTemplate } from '../../../../src/apps/labels/render/template.ts';
import { breakLines, drawable, widthOf } from '../../../../src/apps/labels/render/text.ts';
import { readXml } from '../../../../src/apps/labels/render/xml.ts';
import { panel, svg } from './support.ts';

/** Anything that a column of text can hold, and more: lone surrogates, controls, markup. */
const anyText = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 60 }),
  fc.string({
    unit: fc.constantFrom('<', '>', '&', '"', "'", ']]>', '<!--', '{{', '}}', '\0', '\ud800', 'é', '漢'),
  }),
);

describe('Any text', () => {
  const template = readTemplate(
    svg(`<text id="{{text}}" x="4" y="20" font-size="14" class='{{text|upper}}'>{{text}}<tspan>{{text}}</tspan></text>
      <tally-text x="4" y="40" width="200" lines="3" font-size="14">{{text}}</tally-text>
      <rect fill="{{text}}" width="9" height="9"/>`),
  );

  it('LBL-6 stays text: the filled SVG has the elements of the template and no others', () => {
    const names = (content: string): string[] => {
      const seen: string[] = [];
      const walk = (element: ReturnType<typeof readXml>): void => {
        if (element.name !== 'path') seen.push(element.name);
        for (const child of element.children) if (typeof child !== 'string') walk(child);
      };
      walk(readXml(content, 100));
      return seen;
    };
    fc.assert(
      fc.property(anyText, (text) => {
        const filled = fillTemplate(template, { values: { text }, palette: 'bw' });
        expect(names(filled)).toEqual(['svg', 'text', 'tspan', 'rect']);
      }),
    );
  });

  it('LBL-6 is rendered, in the colours of the palette alone', async () => {
    await fc.assert(
      fc.asyncProperty(anyText, fc.constantFrom(...palettes), async (text, palette) => {
        const image = await renderLabel(template, { text }, { ...panel, palette });
        const { pixels, panel: decoded } = decodePng(image.png);
        expect(decoded).toEqual({ ...panel, palette });
        expect(Math.max(...new Set(pixels))).toBeLessThan(colours[palette].length);
      }),
      { numRuns: 60 },
    );
  });

  it('LBL-6 is broken into lines that fit, with nothing lost but blanks and what the dots stand for', () => {
    fc.assert(
      fc.property(
        anyText,
        fc.integer({ min: 20, max: 300 }),
        fc.integer({ min: 1, max: 5 }),
        (text, width, most) => {
          const drawn = drawable(text);
          const lettering = { size: 14, weight: 'regular' } as const;
          const lines = breakLines(drawn, lettering, width, most);
          expect(lines.length).toBeLessThanOrEqual(most);
          for (const line of lines.filter((line) => [...line].length > 1))
            expect(widthOf(line, lettering)).toBeLessThanOrEqual(width);
          const kept = lines.join('').replace(/[\s\u00a0]/g, '');
          const whole = drawn.replace(/[\s\u00a0]/g, '');
          expect(kept === whole || (lines.length === most && whole.startsWith(kept.replace(/…$/, '')))).toBe(
            true,
          );
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
    ['amount', '1.005', 'EUR', 'en', '1.01'],
    // More digits than a binary number holds: read as one, it would be rounded up.
    ['amount', '999999999999.994999', 'EUR', 'en', '999,999,999,999.99'],
    ['money', '999999999999.994999', 'EUR', 'en', '€999,999,999,999.99'],
  ])('LBL-6 %s of %s %s in %s', (format, price, currency, locale, wanted) => {
    expect(shown(`{{price|${format}}}`, { price, currency, locale })).toBe(wanted);
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
