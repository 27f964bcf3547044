import type { Panel } from './panel.ts';

/**
 * A shelf label for any size of panel: name, price, barcode. A reduced price stands in a band of the third colour, with the
 * old price struck out above it.
 *
 * It needs `name`, `sku`, `price`, `currency` and `locale`, and shows, where there is one, `gtin`, `unitPrice` (an
 * amount) and `unit` (what it is for: `kg`), `promoPrice` and `promoText`.
 */
export function builtInTemplate({ width, height }: Pick<Panel, 'width' | 'height'>): string {
  const layout = width / height >= 1.2 ? wide(width, height) : tall(width, height);
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">
${[...name(layout), ...facts(layout), ...barcode(layout), ...price(layout), ...promotion(layout)].map((line) => `  ${line}`).join('\n')}
</svg>
`;
}

interface Area {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

interface Layout {
  readonly name: Area & { readonly size: number };
  /** Unit price and SKU. */
  readonly facts: Area & { readonly size: number };
  readonly barcode: Area;
  readonly price: Area;
}

/** Strokes of smaller letters are thinner than half a pixel, and get lost. */
const smallest = 11;

/** Name above; facts and barcode on the left, the price on the right. */
function wide(width: number, height: number): Layout {
  const margin = Math.max(4, Math.round(Math.min(width, height) * 0.04));
  const size = Math.max(8, Math.round(Math.min(height * 0.13, width * 0.068)));
  const small = Math.max(smallest, Math.round(size * 0.62));
  const inner = width - 2 * margin;
  const below = margin + Math.round(size * 2.45) + Math.round(margin / 2);
  // Bars of an EAN-13 take 113 modules of whole pixels with the blank around them.
  const left = 113 * Math.max(1, Math.floor((inner * 0.46) / 113));
  const factsHeight = Math.round(small * 2.7);
  const column = { x: margin, width: Math.min(left, inner) };
  return {
    name: { x: margin, y: margin, width: inner, height: below - margin, size },
    facts: { ...column, y: below, height: factsHeight, size: small },
    barcode: {
      ...column,
      y: below + factsHeight,
      height: Math.max(1, height - margin - below - factsHeight),
    },
    price: {
      x: margin + column.width + margin,
      y: below,
      width: Math.max(1, inner - column.width - margin),
      height: Math.max(1, height - margin - below),
    },
  };
}

/** One above the other: name, price, and below them facts beside the barcode. */
function tall(width: number, height: number): Layout {
  const margin = Math.max(4, Math.round(Math.min(width, height) * 0.035));
  const size = Math.max(8, Math.round(width * 0.095));
  const small = Math.max(smallest, Math.round(size * 0.62));
  const inner = width - 2 * margin;
  const below = margin + Math.round(size * 2.45) + Math.round(margin / 2);
  const left = Math.min(inner, 113 * Math.max(1, Math.floor((inner * 0.65) / 113)));
  // A narrow panel has no room beside the bars: the facts stand above them.
  const beside = inner - left >= small * 5;
  const factsHeight = beside ? 0 : Math.round(small * 2.7);
  const foot = Math.round(height * 0.24);
  const footTop = height - margin - foot;
  const factsLeft = beside ? margin + left + Math.round(margin / 2) : margin;
  return {
    name: { x: margin, y: margin, width: inner, height: below - margin, size },
    price: {
      x: margin,
      y: below,
      width: inner,
      height: Math.max(1, footTop - factsHeight - below - margin),
    },
    barcode: { x: margin, y: footTop, width: left, height: foot },
    facts: {
      x: factsLeft,
      y: footTop - factsHeight,
      width: Math.max(1, width - margin - factsLeft),
      height: beside ? foot : factsHeight,
      size: small,
    },
  };
}

function name({ name: { x, y, width, height, size } }: Layout): string[] {
  const rule = Math.max(1, Math.round(size / 18));
  return [
    `<tally-text x="${x}" y="${y + Math.round(size * 0.86)}" width="${width}" lines="2" line-height="${Math.round(size * 1.15)}" font-size="${size}" min-font-size="${Math.round(size * 0.78)}" font-weight="bold">{{name}}</tally-text>`,
    `<rect x="${x}" y="${y + height - Math.round(height * 0.04) - rule - 1}" width="${width}" height="${rule}"/>`,
  ];
}

function facts({ facts: { x, y, width, size } }: Layout): string[] {
  const line = (nth: number) => y + Math.round(size * (0.95 + nth * 1.25));
  const text = `width="${width}" font-size="${size}" min-font-size="${Math.min(size, smallest)}"`;
  return [
    `<tally-text tally-if="unitPrice" x="${x}" y="${line(0)}" ${text}>{{unitPrice|money}} / {{unit?}}</tally-text>`,
    `<tally-text x="${x}" y="${line(1)}" ${text}>{{sku}}</tally-text>`,
  ];
}

function barcode({ barcode: { x, y, width, height } }: Layout): string[] {
  const digits = Math.round(Math.max(smallest, Math.min(height * 0.2, width * 0.085)));
  return [
    `<tally-barcode type="gtin" value="{{gtin?}}" x="${x}" y="${y}" width="${width}" height="${height}"${height >= 3 * digits ? ` digits="${digits}"` : ''}/>`,
  ];
}

/** Figures are 0.73 of the size high; they stand in the middle of the area. */
const figures = 0.73;

function priceIn(within: Area, value: string, fill: string): string {
  const inset = Math.max(2, Math.round(within.height * 0.05));
  const area = { ...within, height: Math.max(1, within.height - 2 * inset), y: within.y + inset };
  const size = Math.max(6, Math.round(Math.min(area.height / figures, area.width)));
  return `<tally-price value="${value}" x="${area.x + area.width}" y="${area.y + area.height}" width="${area.width}" height="${area.height}" font-size="${size}" text-anchor="end" fill="${fill}"/>`;
}

function price({ price: area }: Layout): string[] {
  return ['<g tally-unless="promoPrice">', `  ${priceIn(area, '{{price}}', '#000')}`, '</g>'];
}

/** The text of the offer and the old price: above the new one, or beside it if the band is flat. */
function promotion({ price: area }: Layout): string[] {
  const pad = Math.max(3, Math.round(area.height * 0.06));
  const flat = area.width / area.height >= 2;
  const size = Math.max(8, Math.round(Math.min(area.height * (flat ? 0.24 : 0.2), area.width * 0.11)));
  const textWidth = flat ? Math.floor((area.width - 3 * pad) * 0.36) : Math.floor((area.width - 3 * pad) / 2);
  const head = area.y + pad + Math.round(size * 0.8);
  const foot = area.y + area.height - pad - Math.round(size * 0.22);
  const text = `width="${textWidth}" font-size="${size}" min-font-size="${Math.round(size * 0.6)}" fill="{{@on-accent}}"`;
  const old = flat
    ? `x="${area.x + pad + 2}" y="${foot}"`
    : `x="${area.x + area.width - pad - 2}" y="${head}" text-anchor="end"`;
  const [beside, above] = flat ? [textWidth + pad, 0] : [0, Math.round(size * 1.1)];
  const inside = {
    x: area.x + pad + beside,
    y: area.y + pad + above,
    width: Math.max(1, area.width - 2 * pad - beside),
    height: Math.max(1, area.height - 2 * pad - above),
  };
  return [
    '<g tally-if="promoPrice">',
    `  <rect x="${area.x}" y="${area.y}" width="${area.width}" height="${area.height}" fill="{{@accent}}"/>`,
    `  <tally-text x="${area.x + pad}" y="${head}" ${text} lines="${flat ? 2 : 1}" line-height="${Math.round(size * 1.05)}" font-weight="bold">{{promoText?}}</tally-text>`,
    `  <tally-text ${old} ${text} text-decoration="line-through">{{price|money}}</tally-text>`,
    `  ${priceIn(inside, '{{promoPrice}}', '{{@on-accent}}')}`,
    '</g>',
  ];
}
