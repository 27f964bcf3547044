import type { Panel } from '../../../../src/apps/labels/render/index.ts';

/** A template around what a test is about. */
export const svg = (content: string, { width, height }: Pick<Panel, 'width' | 'height'> = panel): string =>
  `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">\n${content}\n</svg>`;

export const panel: Panel = { width: 296, height: 160, palette: 'bwr' };

export const product = {
  name: 'Rye bread',
  sku: '4711',
  price: '12.5',
  currency: 'EUR',
  locale: 'de-DE',
} as const;
