import { bundledFont, type Font } from './font.ts';
import { type LaidLine, layLine } from './layout.ts';
import { type Lettering, snapBelow } from './lettering.ts';

/** Invisible characters that would be drawn as a box: direction marks, variation selectors, joiners outside of Arabic. */
const invisible =
  /(?<![\u0600-\u08ff])[\u200c\u200d]|[\u200c\u200d](?![\u0600-\u08ff])|(?![\u00ad\u200c\u200d])\p{Default_Ignorable_Code_Point}|\p{Surrogate}/gu;

/**
 * Text as it is drawn: accents joined with their letters, control characters gone, runs of blanks one blank. Soft hyphens
 * stay: they say where a line may end (lines.ts).
 */
export const drawable = (text: string): string =>
  text
    .normalize('NFC')
    // Full-width forms, as the yen of ja-JP, are the same letters to a font.
    .replace(/[\uff00-\uffef]/g, (character) => character.normalize('NFKC'))
    .replace(invisible, '')
    .replace(/[\p{Control}\p{Line_Separator}\p{Paragraph_Separator} ]+/gu, ' ')
    .trim();

/** Most texts, found without a look at each letter; the bundled font has all of these. */
const common = /^[\x20-\x7e\xa0-\xac\xae-\u0148\u014a-\u017e\u2010-\u2015\u2018-\u201e\u2026\u20ac]*$/;

/** Whether the bundled font has every letter: then each is drawn as it stands, from left to right. */
export function isPlain(text: string, weight: Lettering['weight']): boolean {
  if (common.test(text)) return true;
  const font = bundledFont(weight);
  for (const character of text) if (!font.has(character.codePointAt(0) ?? 0)) return false;
  return true;
}

const laid = new Map<string, LaidLine>();
const mostLaid = 2000;

/** Lines are measured many times before one is drawn. */
function laidLine(text: string, lettering: Lettering): LaidLine {
  const key = `${lettering.weight} ${lettering.size} ${lettering.language ?? ''} ${text}`;
  let line = laid.get(key);
  if (!line) {
    line = layLine(text, lettering);
    if (laid.size >= mostLaid) laid.clear();
    laid.set(key, line);
  }
  return line;
}

const scaleOf = (font: Font, size: number): number => size / font.unitsPerEm;

export function widthOf(text: string, lettering: Lettering): number {
  const { size, weight } = lettering;
  if (!isPlain(text, weight)) return laidLine(text, lettering).width;
  const font = bundledFont(weight);
  const scale = scaleOf(font, size);
  let width = 0;
  for (const character of text) width += advanceOf(font, character, scale, size);
  return width;
}

function advanceOf(font: Font, character: string, scale: number, size: number): number {
  const advance = font.glyph(character.codePointAt(0) ?? 0).advance * scale;
  return size < snapBelow ? Math.round(advance) : advance;
}

export const capHeight = ({ size, weight }: Lettering): number => {
  const font = bundledFont(weight);
  return font.capHeight * scaleOf(font, size);
};

/** How far the text reaches below its baseline. */
export function descentOf(text: string, { size, weight }: Lettering): number {
  const font = bundledFont(weight);
  let lowest = 0;
  for (const character of text)
    for (const command of font.glyph(character.codePointAt(0) ?? 0).outline)
      lowest = Math.min(lowest, Number(command.at(-1)) || 0);
  return -lowest * scaleOf(font, size);
}

/** Path data of one line, its baseline beginning at (x, y). */
export function pathOf(text: string, lettering: Lettering, x: number, y: number): string {
  const { size, weight } = lettering;
  const baseline = size < snapBelow ? Math.round(y) : y;
  const start = size < snapBelow ? Math.round(x) : x;
  const font = bundledFont(weight);
  let path = '';
  if (!isPlain(text, weight)) {
    for (const glyph of laidLine(text, lettering).glyphs) {
      const shape = shapeOf(glyph.font, glyph.index, size);
      if (shape !== '') path += `M${short(start + glyph.x)} ${short(baseline - glyph.y)}${shape}`;
    }
    return path;
  }
  const scale = scaleOf(font, size);
  let pen = start;
  for (const character of text) {
    const shape = shapeOf(font, font.indexOf(character.codePointAt(0) ?? 0), size);
    if (shape !== '') path += `M${short(pen)} ${short(baseline)}${shape}`;
    pen += advanceOf(font, character, scale, size);
  }
  return path;
}

const shapes = new Map<Font, Map<string, string>>();
const mostShapes = 20_000;

/** A glyph as relative path data, which is the same wherever it stands. */
function shapeOf(font: Font, index: number, size: number): string {
  const ofFont = shapes.get(font) ?? new Map<string, string>();
  shapes.set(font, ofFont);
  const key = `${size} ${index}`;
  let shape = ofFont.get(key);
  if (shape !== undefined) return shape;
  const scale = scaleOf(font, size);
  let [x, y] = [0, 0];
  let [startX, startY] = [0, 0];
  // Relative to the rounded place, so that rounding does not add up along the outline.
  const step = (toX: number, toY: number): string => {
    const [dx, dy] = [round(toX * scale - x), round(-toY * scale - y)];
    x += dx;
    y += dy;
    return `${short(dx)} ${short(dy)}`;
  };
  shape = font
    .glyphAt(index)
    .outline.map((command) => {
      if (command[0] === 'Z') {
        [x, y] = [startX, startY];
        return 'z';
      }
      if (command[0] === 'Q') {
        const [cx, cy] = [round(command[1] * scale - x), round(-command[2] * scale - y)];
        return `q${short(cx)} ${short(cy)} ${step(command[3], command[4])}`;
      }
      const moved = `${command[0].toLowerCase()}${step(command[1], command[2])}`;
      if (command[0] === 'M') [startX, startY] = [x, y];
      return moved;
    })
    .join('');
  if (ofFont.size >= mostShapes) ofFont.clear();
  ofFont.set(key, shape);
  return shape;
}

const round = (value: number): number => Math.round(value * 1000) / 1000;
const short = (value: number): string => String(round(value));
