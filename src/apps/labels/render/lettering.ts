import type { fontFiles } from './font.ts';

export type Weight = keyof typeof fontFiles;

export interface Lettering {
  readonly size: number;
  readonly weight: Weight;
  /** A locale such as `ar-EG`: decides where a text begins, which forms of Chinese characters it has, and how words are split. */
  readonly language?: string;
}

/** Below this size letters start on whole pixels, so that the same letter always looks the same. */
export const snapBelow = 30;
