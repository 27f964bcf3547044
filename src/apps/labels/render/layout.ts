import { createRequire } from 'node:module';
import type { Bidi } from 'bidi-js';
import { bundledFont, type Font } from './font.ts';
import { type Lettering, snapBelow } from './lettering.ts';
import { type WideFont, wideFontOf } from './wide-fonts.ts';

/** A glyph in its place, in pixels from where the line begins; y upwards from the baseline. */
export interface PlacedGlyph {
  readonly font: Font;
  readonly index: number;
  readonly x: number;
  readonly y: number;
}

export interface LaidLine {
  readonly glyphs: readonly PlacedGlyph[];
  readonly width: number;
}

const require = createRequire(import.meta.url);
let loadedBidi: Bidi | undefined;

/** Loaded for the first text that needs it. */
function bidi(): Bidi {
  loadedBidi ??= (require('bidi-js') as () => Bidi)();
  return loadedBidi;
}

/** Languages that are written from right to left, of those whose letters there is a font for. */
const rightToLeftLanguages = /^(?:ar|ckb|dv|fa|he|iw|ks|ps|sd|ug|ur|yi)\b/;
const rightToLeftLetters = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]/;
const kana = /[\u3040-\u30ff]/;

/** A text with such letters runs from right to left if its store's language does, or if its first letter does. */
export function isRightToLeft(text: string, language = ''): boolean {
  if (!rightToLeftLetters.test(text)) return false;
  return rightToLeftLanguages.test(language) || levelsOf(text, language).paragraphs[0]?.level === 1;
}

export const isJapanese = (text: string, language = ''): boolean => /^ja\b/.test(language) || kana.test(text);

const levelsOf = (text: string, language: string) =>
  bidi().getEmbeddingLevels(text, rightToLeftLanguages.test(language) ? 'rtl' : 'auto');

/** Characters in a row that have one font and one direction. */
interface Run {
  text: string;
  readonly level: number;
  /** Undefined: the bundled font. */
  readonly wide: WideFont | undefined;
}

/** Lays out one line that has letters beyond the bundled font. Throws FontNeeded. */
export function layLine(text: string, lettering: Lettering): LaidLine {
  const glyphs: PlacedGlyph[] = [];
  let pen = 0;
  for (const run of inVisualOrder(runsOf(text, lettering)))
    pen = run.wide?.shaper
      ? placeShaped(run, lettering, pen, glyphs)
      : placePlain(run, lettering, pen, glyphs);
  return { glyphs, width: lettering.size < snapBelow ? Math.ceil(pen) : pen };
}

function runsOf(text: string, { weight, language = '' }: Lettering): Run[] {
  const { levels } = levelsOf(text, language);
  const japanese = isJapanese(text, language);
  const bundled = bundledFont(weight);
  const runs: Run[] = [];
  let at = 0;
  for (const character of text) {
    const codePoint = character.codePointAt(0) ?? 0;
    const level = levels[at] ?? 0;
    const last = runs.at(-1);
    // A mark goes with its letter, or it could not be placed.
    const isMarkOfLast =
      last?.wide !== undefined && /\p{M}/u.test(character) && last.wide.font.has(codePoint);
    const wide = isMarkOfLast
      ? last.wide
      : bundled.has(codePoint)
        ? undefined
        : wideFontOf(codePoint, weight, japanese);
    const drawn =
      level % 2 === 1 && wide?.shaper === undefined
        ? (bidi().getMirroredCharacter(character) ?? character)
        : character;
    if (last && last.wide === wide && last.level === level) last.text += drawn;
    else runs.push({ text: drawn, level, wide });
    at += character.length;
  }
  return runs;
}

/** Rule L2 of the Unicode bidirectional algorithm, for whole runs. */
function inVisualOrder(runs: readonly Run[]): readonly Run[] {
  const ordered = [...runs];
  const highest = Math.max(0, ...runs.map(({ level }) => level));
  for (let level = highest; level >= 1; level -= 1)
    for (let start = 0; start < ordered.length; start += 1) {
      let end = start;
      while ((ordered[end]?.level ?? -1) >= level) end += 1;
      if (end - start > 1) ordered.splice(start, end - start, ...ordered.slice(start, end).reverse());
      start = Math.max(start, end - 1);
    }
  return ordered;
}

/** Joined letters keep their exact places: a rounded one would tear the line that joins them. */
function placeShaped(
  { text, level, wide }: Run,
  { size, language = '' }: Lettering,
  start: number,
  glyphs: PlacedGlyph[],
): number {
  if (!wide?.shaper) return start;
  const { font, shaper } = wide;
  const scale = size / font.unitsPerEm;
  let pen = size < snapBelow ? Math.round(start) : start;
  for (const { index, advance, dx, dy } of shaper.shape(text, level % 2 === 1, language)) {
    glyphs.push({ font, index, x: pen + dx * scale, y: dy * scale });
    pen += advance * scale;
  }
  return pen;
}

function placePlain(
  { text, level, wide }: Run,
  { size, weight }: Lettering,
  start: number,
  glyphs: PlacedGlyph[],
): number {
  const font = wide?.font ?? bundledFont(weight);
  const scale = size / font.unitsPerEm;
  const snapped = (value: number): number => (size < snapBelow ? Math.round(value) : value);
  let pen = snapped(start);
  const characters = level % 2 === 1 ? [...text].reverse() : text;
  for (const character of characters) {
    const index = font.indexOf(character.codePointAt(0) ?? 0);
    glyphs.push({ font, index, x: pen, y: 0 });
    pen += snapped(font.glyphAt(index).advance * scale);
  }
  return pen;
}
