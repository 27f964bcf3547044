import type { Panel } from './panel.ts';

/**
 * A shelf label for any size of panel: name, price, barcode. A reduced price stands in a band of the third colour, with the
 * old price struck out and the percentage beside it.
 *
 * It needs `name`, `sku`, `price`, `currency` and `locale`, and shows, where there is one, `gtin`, `unitPrice` (an
 * amount) and `unit` (what it is for: `kg`); on offer `promoPrice`, `promoUnitPrice` and `promoText`, or without a text
 * how many percent the price is reduced by.
 */
export function builtInTemplate({ width, height }: Pick<Panel, 'width' | 'height'>): string {
  // A high panel has room for the price above the bars, and these can then be wider.
  const layout = width / height >= 1.2 && height < 250 ? wide(width, height) : tall(width, height);
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
  readonly facts: Area & { readonly size: number; readonly unitLines: number };
  readonly barcode: Area;
  readonly price: Area;
}

/** Strokes of smaller letters are thinner than half a pixel, and get lost. */
const smallest = 11;
/** Modules of an EAN-13 with the blank that readers need. */
const eanModules = 113;

/** Name above; facts and barcode on the left, the price on the right. */
function wide(width: number, height: number): Layout {
  const margin = Math.max(4, Math.round(Math.min(width, height) * 0.04));
  const size = Math.max(8, Math.round(Math.min(height * 0.13, width * 0.068)));
  const small = Math.max(smallest, Math.round(size * 0.62));
  const inner = width - 2 * margin;
  const below = margin + Math.round(size * 2.45) + Math.round(margin / 2);
  // Bars of an EAN-13 take 113 modules of whole pixels with the blank around them; of two pixels each they are read from
  // further away, so they may take more than half if the price keeps a third.
  const modules = Math.max(1, Math.floor((inner * 0.46) / eanModules));
  const left = eanModules * (modules === 1 && inner - 2 * eanModules - margin >= inner * 0.34 ? 2 : modules);
  const factsHeight = Math.round(small * 2.7);
  const column = { x: margin, width: Math.min(left, inner) };
  return {
    name: { x: margin, y: margin, width: inner, height: below - margin, size },
    facts: { ...column, y: below, height: factsHeight, size: small, unitLines: 1 },
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
  const size = Math.max(8, Math.round(Math.min(width * 0.095, height * 0.1)));
  const small = Math.max(smallest, Math.round(size * 0.62));
  const inner = width - 2 * margin;
  const below = margin + Math.round(size * 2.45) + Math.round(margin / 2);
  const left = Math.min(inner, eanModules * Math.max(1, Math.floor((inner * 0.65) / eanModules)));
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
      unitLines: beside ? 2 : 1,
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

/** The unit price is that of the price which is shown: on offer its own, or none. */
function facts({ facts: { x, y, width, size, unitLines } }: Layout): string[] {
  const line = (nth: number) => y + Math.round(size * (0.95 + nth * 1.25));
  const text = `width="${width}" font-size="${size}"`;
  const unitPrice = (name: string) =>
    `<tally-text tally-if="${name}" x="${x}" y="${line(1)}" ${text} lines="${unitLines}" cut="no">{{${name}|money}} / {{unit?}}</tally-text>`;
  return [
    `<g tally-unless="promoPrice">${unitPrice('unitPrice')}</g>`,
    `<g tally-if="promoPrice">${unitPrice('promoUnitPrice')}</g>`,
    `<tally-text x="${x}" y="${line(0)}" ${text} min-font-size="${Math.min(size, smallest)}">{{sku}}</tally-text>`,
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

/**
 * The text of the offer and the old price: side by side above the new one, one below the other in a narrow band, and beside
 * the new one in a flat band.
 */
function promotion({ price: area }: Layout): string[] {
  const pad = Math.max(3, Math.round(area.height * 0.06));
  const shape = area.width / area.height;
  const kind = shape >= 2.6 ? 'flat' : shape < 1.5 ? 'narrow' : 'plain';
  const share = { flat: 0.24, plain: 0.2, narrow: 0.15 }[kind];
  const size = Math.max(8, Math.round(Math.min(area.height * share, area.width * 0.13)));
  const room = area.width - 3 * pad;
  const [offerWidth, oldWidth] = {
    flat: [Math.floor(room * 0.36), Math.floor(room * 0.36)],
    plain: [Math.floor(room * 0.56), Math.floor(room * 0.44)],
    narrow: [area.width - 2 * pad, area.width - 2 * pad - 4],
  }[kind] as [number, number];
  const head = area.y + pad + Math.round(size * 0.8);
  const [left, right] = [area.x + pad, area.x + area.width - pad];
  const old = {
    flat: `x="${left + 2}" y="${area.y + area.height - pad - Math.round(size * 0.22)}"`,
    plain: `x="${right - 2}" y="${head}" text-anchor="end"`,
    narrow: `x="${left + 2}" y="${head + Math.round(size * 1.2)}"`,
  }[kind];
  const [beside, above] = { flat: [offerWidth + pad, 0], plain: [0, size * 1.1], narrow: [0, size * 2.3] }[
    kind
  ] as [number, number];
  const inside = {
    x: left + beside,
    y: area.y + pad + Math.round(above),
    width: Math.max(1, area.width - 2 * pad - beside),
    height: Math.max(1, area.height - 2 * pad - Math.round(above)),
  };
  const text = `font-size="${size}" fill="{{@on-accent}}"`;
  const offer = `x="${left}" y="${head}" width="${offerWidth}" ${text} line-height="${Math.round(size * 1.05)}" font-weight="bold"`;
  return [
    '<g tally-if="promoPrice">',
    `  <rect x="${area.x}" y="${area.y}" width="${area.width}" height="${area.height}" fill="{{@accent}}"/>`,
    `  <tally-text tally-if="promoText" ${offer} lines="${kind === 'flat' ? 2 : 1}" min-font-size="${Math.min(size, smallest)}">{{promoText}}</tally-text>`,
    `  <tally-text tally-unless="promoText" ${offer} cut="no">{{promoPrice|off}}</tally-text>`,
    `  <tally-text ${old} width="${oldWidth}" ${text} cut="no" text-decoration="line-through">{{price|money}}</tally-text>`,
    `  ${priceIn(inside, '{{promoPrice}}', '{{@on-accent}}')}`,
    '</g>',
  ];
}
