import type { Panel } from './panel.ts';

/** What a label is to show, in its panel's colours. */
export interface LabelImage {
  /** Indexed, 1 or 2 bits a pixel. */
  readonly png: Buffer;
  /** SHA-256 in hex of size, palette and pixels: it does not change with the PNG encoder. */
  readonly hash: string;
  readonly panel: Panel;
}
