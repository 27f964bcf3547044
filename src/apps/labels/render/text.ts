import { bundledFont, type Font, type fontFiles } from './font.ts';

export type Weight = keyof typeof fontFiles;

export interface Lettering {
  readonly size: number;
  readonly weight: Weight;
}

/** Below this size letters start on whole pixels, so that the same letter always looks the same. */
const snapBelow = 30;
const ellipsis = '…';

/** Invisible characters that would be drawn as a box: joiners, direction marks, variation selectors. */
const invisible = /\p{Default_Ignorable_Code_Point}|\p{Surrogate}/gu;

/** Text as it is drawn: accents joined with their letters, control characters gone, runs of blanks one blank. */
export const drawable = (text: string): string =>
  text
    .normalize('NFC')
    // Full-width forms, as the yen of ja-JP, are the same letters to a font.
    .replace(/[\uff00-\uffef]/g, (character) => character.normalize('NFKC'))
    .replace(invisible, '')
    .replace(/[\p{Control}\p{Line_Separator}\p{Paragraph_Separator} ]+/gu, ' ')
    .trim();

const scaleOf = (font: Font, size: number): number => size / font.unitsPerEm;

export function widthOf(text: string, { size, weight }: Lettering): number {
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
  const font = bundledFont(lettering.weight);
  const scale = scaleOf(font, lettering.size);
  const baseline = lettering.size < snapBelow ? Math.round(y) : y;
  let pen = lettering.size < snapBelow ? Math.round(x) : x;
  let path = '';
  for (const character of text) {
    const shape = shapeOf(font, character, lettering);
    if (shape !== '') path += `M${short(pen)} ${short(baseline)}${shape}`;
    pen += advanceOf(font, character, scale, lettering.size);
  }
  return path;
}

const shapes = new Map<string, string>();
const mostShapes = 20_000;

/** A glyph as relative path data, which is the same wherever it stands. */
function shapeOf(font: Font, character: string, { size, weight }: Lettering): string {
  const key = `${weight}${size}${character}`;
  let shape = shapes.get(key);
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
    .glyph(character.codePointAt(0) ?? 0)
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
  if (shapes.size >= mostShapes) shapes.clear();
  shapes.set(key, shape);
  return shape;
}

const round = (value: number): number => Math.round(value * 1000) / 1000;
const short = (value: number): string => String(round(value));

/** Breaks text into at most `most` lines no wider than `width`; what does not fit ends in an ellipsis. */
export function breakLines(
  text: string,
  lettering: Lettering,
  width: number,
  most: number,
): readonly string[] {
  const fits = (line: string) => widthOf(line, lettering) <= width;
  const lines: string[] = [];
  let rest = text;
  while (rest !== '') {
    if (fits(rest)) return [...lines, rest];
    if (lines.length === most - 1) return [...lines, shortened(rest, fits)];
    const end = breakAt(rest, fits);
    lines.push(rest.slice(0, end).trimEnd());
    rest = rest.slice(end).trimStart();
  }
  return lines;
}

/** The last place where the line may end: after a blank, hyphen or slash, else within the word. A % stays with its number. */
function breakAt(text: string, fits: (line: string) => boolean): number {
  let best = 0;
  for (const found of text.matchAll(/ (?!%)|[-–/](?=\S)/g)) {
    const end = found.index + (found[0] === ' ' ? 0 : 1);
    if (!fits(text.slice(0, end))) break;
    best = end;
  }
  return best > 0 ? best : longestStart(text, fits);
}

/** At least one character, or the loop would never end. */
function longestStart(text: string, fits: (line: string) => boolean): number {
  let end = 0;
  for (const character of text) {
    if (end > 0 && !fits(text.slice(0, end + character.length))) break;
    end += character.length;
  }
  return end;
}

function shortened(text: string, fits: (line: string) => boolean): string {
  const end = longestStart(text, (start) => fits(start.trimEnd() + ellipsis));
  const kept = text.slice(0, end).replace(/[\s,;:./–-]+$/, '');
  return fits(kept + ellipsis) ? kept + ellipsis : '';
}
