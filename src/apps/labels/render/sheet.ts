import { builtInTemplate } from './built-in.ts';
import { renderLabel } from './label.ts';
import { type Palette, type Panel, palettes, standardSizes } from './panel.ts';
import { withResolution } from './png.ts';
import { rasterizer } from './rasterizer.ts';
import { samplePromotion, sampleValues } from './sample.ts';
import { readTemplate } from './template.ts';
import { pathOf } from './text.ts';

/** A4 at 300 dots an inch. */
const sheet = { width: 2480, height: 3508, dpi: 300 } as const;
const margin = 90;
const gap = 60;
const caption = { weight: 'regular', size: 32 } as const;
const captionHeight = 52;

export interface SheetOptions {
  /** SVG for a size; default: the built-in templates. Sizes it returns undefined for are left out. */
  readonly template?: (size: { readonly width: number; readonly height: number }) => string | undefined;
  /** What the labels are filled with; default: a sample, and the same as a promotion. */
  readonly values?: readonly Readonly<Record<string, string>>[];
  readonly palettes?: readonly Palette[];
}

interface Placed {
  readonly png: Buffer;
  readonly title: string;
  readonly width: number;
  readonly height: number;
}

/**
 * PNGs of A4 sheets at 300 dpi (2480 × 3508) with the labels of every standard size at their physical size, each with a
 * caption: to be printed, cut out and hung up. As many sheets as it takes. Throws TemplateError where a label cannot be
 * made.
 *
 * @example for (const [nth, png] of (await previewSheets()).entries()) writeFileSync(`sheet-${nth + 1}.png`, png);
 * @example await previewSheets({ template: ({ width }) => (width === 296 ? svg : undefined), values: [productValues] });
 */
export async function previewSheets(options: SheetOptions = {}): Promise<readonly Buffer[]> {
  const labels = await drawLabels(options);
  const rasterize = await rasterizer();
  const sheets: Buffer[] = [];
  for (const svg of layOut(labels)) {
    const image = rasterize(svg, { background: '#fff', font: { loadSystemFonts: false } });
    sheets.push(withResolution(image.asPng(), sheet.dpi));
  }
  return sheets;
}

async function drawLabels(options: SheetOptions): Promise<readonly Placed[]> {
  const { template = builtInTemplate, values = [sampleValues, samplePromotion] } = options;
  const labels: Placed[] = [];
  for (const size of standardSizes) {
    const svg = template(size);
    if (svg === undefined) continue;
    const read = readTemplate(svg);
    for (const palette of options.palettes ?? palettes)
      for (const filling of values) {
        const panel: Panel = { width: size.width, height: size.height, palette };
        const { png } = await renderLabel(read, filling, panel);
        labels.push({ png, ...physical(size), title: `${size.width}×${size.height} ${palette}` });
      }
  }
  return labels;
}

const physical = ({ width, height, dpi }: (typeof standardSizes)[number]) => ({
  width: Math.round((width / dpi) * sheet.dpi),
  height: Math.round((height / dpi) * sheet.dpi),
});

/** Row after row, sheet after sheet; the SVG of each. */
function layOut(labels: readonly Placed[]): readonly string[] {
  const sheets: string[][] = [[]];
  let [x, y, rowHeight] = [margin, margin, 0];
  for (const label of labels) {
    if (x > margin && x + label.width > sheet.width - margin) {
      y += rowHeight + captionHeight + gap;
      [x, rowHeight] = [margin, 0];
    }
    if (y > margin && y + label.height + captionHeight > sheet.height - margin) {
      sheets.push([]);
      [x, y, rowHeight] = [margin, margin, 0];
    }
    sheets.at(-1)?.push(drawn(label, x, y));
    x += label.width + gap;
    rowHeight = Math.max(rowHeight, label.height);
  }
  return sheets.map(
    (parts, nth) =>
      `<svg xmlns="http://www.w3.org/2000/svg" width="${sheet.width}" height="${sheet.height}">${letters(`Sheet ${nth + 1} of ${sheets.length}: A4 at 300 dpi, labels at their size`, margin, margin - 36)}${parts.join('')}</svg>`,
  );
}

/** The image, a line around it to cut along, and what it is. */
const drawn = ({ png, title, width, height }: Placed, x: number, y: number): string =>
  [
    `<image x="${x}" y="${y}" width="${width}" height="${height}" preserveAspectRatio="none" image-rendering="optimizeSpeed" href="data:image/png;base64,${png.toString('base64')}"/>`,
    `<rect x="${x - 1}" y="${y - 1}" width="${width + 2}" height="${height + 2}" fill="none" stroke="#999" stroke-width="2"/>`,
    letters(title, x, y + height + captionHeight - 14),
  ].join('');

const letters = (text: string, x: number, y: number): string =>
  `<path d="${pathOf(text, caption, x, y)}" fill="#444"/>`;
