import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { brotliDecompress } from 'node:zlib';
import { bundledFont, Font } from './font.ts';
import type { Shaper } from './shaper.ts';

/**
 * Fonts for scripts that Inter does not have. They are read when a text first needs them: a process whose labels are Latin,
 * Greek and Cyrillic never opens them.
 */
export type WideScript = keyof typeof scripts;

/** A font of one script and weight, with what joins its letters where they join. */
export interface WideFont {
  readonly script: WideScript;
  readonly font: Font;
  readonly shaper: Shaper | undefined;
}

type Weight = 'regular' | 'bold';

const scripts = {
  arabic: { file: 'NotoSansArabic', tag: 'Arab' },
  hebrew: { file: 'NotoSansHebrew', tag: 'Hebr' },
  japanese: { file: 'NotoSansJP', tag: undefined },
  korean: { file: 'NotoSansKR', tag: undefined },
  chinese: { file: 'NotoSansSC', tag: undefined },
} as const;

/** First and last character of blocks, with the fonts that may have them, in this order. */
const blocks: readonly (readonly [number, number, readonly WideScript[]])[] = [
  [0x0590, 0x05ff, ['hebrew']],
  [0x0600, 0x06ff, ['arabic']],
  [0x0750, 0x077f, ['arabic']],
  [0x0870, 0x08ff, ['arabic']],
  [0x1100, 0x11ff, ['korean']],
  [0x200c, 0x200d, ['arabic']],
  [0x2e80, 0x303f, ['chinese', 'japanese', 'korean']],
  [0x3040, 0x30ff, ['japanese', 'chinese']],
  [0x3130, 0x318f, ['korean']],
  [0x31f0, 0x31ff, ['japanese']],
  [0x3400, 0x9fff, ['chinese', 'japanese']],
  [0xac00, 0xd7a3, ['korean']],
  [0xf900, 0xfaff, ['chinese', 'japanese']],
  [0xfb1d, 0xfb4f, ['hebrew']],
  [0xfb50, 0xfdff, ['arabic']],
  [0xfe70, 0xfeff, ['arabic']],
];

/** A font must be read before the text can be laid out; `renderLabel` reads it and fills the template again. */
export class FontNeeded extends Error {
  readonly script: WideScript;
  readonly weight: Weight;

  constructor(script: WideScript, weight: Weight) {
    super(`the font for ${script} has not been read yet`);
    this.script = script;
    this.weight = weight;
  }
}

const loaded = new Map<string, WideFont>();
const loading = new Map<string, Promise<void>>();

/** The font for a character that Inter does not have; undefined: no font has it. Throws FontNeeded. */
export function wideFontOf(codePoint: number, weight: Weight, isJapanese: boolean): WideFont | undefined {
  const block = blocks.find(([first, last]) => codePoint >= first && codePoint <= last);
  // Chinese and Japanese write many of the same characters differently.
  const order = isJapanese ? block?.[2].toSorted((a, b) => rank(a) - rank(b)) : block?.[2];
  for (const script of order ?? []) {
    const font = loaded.get(`${script} ${weight}`);
    if (!font) throw new FontNeeded(script, weight);
    if (font.font.has(codePoint)) return font;
  }
  return undefined;
}

const rank = (script: WideScript): number => (script === 'japanese' ? 0 : 1);

/** Reads a font, once per process. */
export async function loadFont({ script, weight }: FontNeeded): Promise<void> {
  const key = `${script} ${weight}`;
  let read = loading.get(key);
  if (!read) {
    read = readWideFont(script, weight).then((font) => void loaded.set(key, font));
    loading.set(key, read);
    read.catch(() => loading.delete(key));
  }
  return read;
}

async function readWideFont(script: WideScript, weight: Weight): Promise<WideFont> {
  const { file, tag } = scripts[script];
  const name = `${file}-${weight === 'bold' ? 'Bold' : 'Regular'}.ttf.br`;
  const bytes = await promisify(brotliDecompress)(await readFile(join(import.meta.dirname, 'fonts', name)));
  const shaper = tag && (await import('./shaper.ts')).Shaper;
  return { script, font: new Font(bytes), shaper: shaper && new shaper(bytes, tag) };
}

/** Characters for which there is no font at all, each once. Throws FontNeeded. */
export function missingGlyphs(text: string, weight: Weight, isJapanese: boolean): readonly string[] {
  const inter = bundledFont(weight);
  const missing = new Set<string>();
  for (const character of text) {
    const codePoint = character.codePointAt(0) ?? 0;
    if (!inter.has(codePoint) && !wideFontOf(codePoint, weight, isJapanese)) missing.add(character);
  }
  return [...missing];
}
