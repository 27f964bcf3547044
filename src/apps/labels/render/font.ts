import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * A TrueType font, read once per process. The renderer would read and shape the fonts again for every image: 3.5 of the
 * 4.2 ms of a small label. Outlines that are already paths cost no more than other paths, and the same code measures and
 * draws a line.
 *
 * One glyph per character, no kerning: what suits Latin, Greek, Cyrillic and Chinese. Scripts whose letters join are
 * shaped first (shaping.ts).
 */
export interface Glyph {
  /** In font units. */
  readonly advance: number;
  /** Closed contours, as commands with coordinates in font units, y upwards. */
  readonly outline: readonly Command[];
}
export type Command =
  | readonly ['M' | 'L', number, number]
  | readonly ['Q', number, number, number, number]
  | readonly ['Z'];

export const fontFiles = {
  regular: join(import.meta.dirname, 'fonts', 'Inter-Regular.ttf'),
  bold: join(import.meta.dirname, 'fonts', 'Inter-Bold.ttf'),
} as const;
export const fontFamily = 'Inter';

/** How deep glyphs may be made of other glyphs: no font goes deeper. */
const maxNesting = 6;

export class Font {
  readonly unitsPerEm: number;
  readonly capHeight: number;
  readonly #view: DataView;
  readonly #glyf: number;
  readonly #offsets: (glyph: number) => number;
  readonly #advance: (glyph: number) => number;
  readonly #glyphOf: (codePoint: number) => number;
  readonly #read = new Map<number, Glyph>();

  constructor(file: Buffer) {
    const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
    const tables = new Map<string, number>();
    for (let index = 0; index < view.getUint16(4); index += 1) {
      const entry = 12 + index * 16;
      tables.set(file.toString('latin1', entry, entry + 4), view.getUint32(entry + 8));
    }
    const table = (tag: string): number => {
      const offset = tables.get(tag);
      if (offset === undefined) throw new Error(`the font has no ${tag} table`);
      return offset;
    };
    this.#view = view;
    this.#glyf = table('glyf');
    this.unitsPerEm = view.getUint16(table('head') + 18);
    this.capHeight = view.getInt16(table('OS/2') + 88);
    const loca = table('loca');
    this.#offsets =
      view.getInt16(table('head') + 50) === 0
        ? (glyph) => view.getUint16(loca + glyph * 2) * 2
        : (glyph) => view.getUint32(loca + glyph * 4);
    const metrics = view.getUint16(table('hhea') + 34);
    const hmtx = table('hmtx');
    this.#advance = (glyph) => view.getUint16(hmtx + Math.min(glyph, metrics - 1) * 4);
    this.#glyphOf = characterMap(view, table('cmap'));
  }

  has(codePoint: number): boolean {
    return this.#glyphOf(codePoint) !== 0;
  }

  /** The glyph's number; 0 for a character that the font does not have. */
  indexOf(codePoint: number): number {
    return this.#glyphOf(codePoint);
  }

  /** The glyph of a character; the font's box for a missing one. */
  glyph(codePoint: number): Glyph {
    return this.glyphAt(this.#glyphOf(codePoint));
  }

  glyphAt(index: number): Glyph {
    let glyph = this.#read.get(index);
    if (!glyph) {
      glyph = { advance: this.#advance(index), outline: this.#outline(index, 0) };
      this.#read.set(index, glyph);
    }
    return glyph;
  }

  #outline(glyph: number, depth: number): Command[] {
    const start = this.#offsets(glyph);
    if (this.#offsets(glyph + 1) === start || depth > maxNesting) return [];
    const at = this.#glyf + start;
    const contours = this.#view.getInt16(at);
    return contours >= 0 ? simpleOutline(this.#view, at, contours) : this.#composite(at + 10, depth);
  }

  #composite(start: number, depth: number): Command[] {
    const view = this.#view;
    const commands: Command[] = [];
    let at = start;
    let flags: number;
    do {
      flags = view.getUint16(at);
      const glyph = view.getUint16(at + 2);
      const wide = (flags & 1) !== 0;
      const dx = wide ? view.getInt16(at + 4) : view.getInt8(at + 4);
      const dy = wide ? view.getInt16(at + 6) : view.getInt8(at + 5);
      at += wide ? 8 : 6;
      const f2dot14 = () => {
        at += 2;
        return view.getInt16(at - 2) / 16384;
      };
      let [a, b, c, d] = [1, 0, 0, 1];
      if (flags & 0x08) a = d = f2dot14();
      else if (flags & 0x40) [a, d] = [f2dot14(), f2dot14()];
      else if (flags & 0x80) [a, b, c, d] = [f2dot14(), f2dot14(), f2dot14(), f2dot14()];
      for (const command of this.#outline(glyph, depth + 1))
        commands.push(moved(command, (x, y) => [a * x + c * y + dx, b * x + d * y + dy]));
    } while (flags & 0x20);
    return commands;
  }
}

function moved(command: Command, to: (x: number, y: number) => [number, number]): Command {
  if (command[0] === 'Z') return command;
  if (command[0] === 'Q') return ['Q', ...to(command[1], command[2]), ...to(command[3], command[4])];
  return [command[0], ...to(command[1], command[2])];
}

interface Point {
  readonly x: number;
  readonly y: number;
  readonly on: boolean;
}

function simpleOutline(view: DataView, start: number, contours: number): Command[] {
  let at = start + 10;
  const ends = Array.from({ length: contours }, (_, index) => view.getUint16(at + index * 2));
  at += contours * 2;
  at += 2 + view.getUint16(at);
  const count = (ends.at(-1) ?? -1) + 1;
  const flags: number[] = [];
  while (flags.length < count) {
    const flag = view.getUint8(at++);
    const times = flag & 8 ? view.getUint8(at++) + 1 : 1;
    for (let time = 0; time < times; time += 1) flags.push(flag);
  }
  const coordinates = (short: number, same: number): number[] => {
    let value = 0;
    return flags.map((flag) => {
      if (flag & short) value += flag & same ? view.getUint8(at++) : -view.getUint8(at++);
      else if (!(flag & same)) {
        value += view.getInt16(at);
        at += 2;
      }
      return value;
    });
  };
  const xs = coordinates(2, 16);
  const ys = coordinates(4, 32);
  const points = flags.map(
    (flag, index): Point => ({ x: xs[index] ?? 0, y: ys[index] ?? 0, on: (flag & 1) === 1 }),
  );
  return ends.flatMap((end, index) =>
    contour(points.slice(index === 0 ? 0 : (ends[index - 1] ?? 0) + 1, end + 1)),
  );
}

/** Quadratic splines; between two control points lies a point on the line, halfway. */
function contour(points: readonly Point[]): Command[] {
  const [first] = points;
  const last = points.at(-1);
  if (!first || !last) return [];
  const between = (a: Point, b: Point): Point => ({ x: (a.x + b.x) / 2, y: (a.y + b.y) / 2, on: true });
  const start = first.on ? first : last.on ? last : between(first, last);
  const commands: Command[] = [['M', start.x, start.y]];
  let control: Point | undefined;
  const reach = (to: Point): void => {
    commands.push(control ? ['Q', control.x, control.y, to.x, to.y] : ['L', to.x, to.y]);
    control = undefined;
  };
  for (const point of first.on ? points.slice(1) : points) {
    if (point.on) reach(point);
    else {
      if (control) reach(between(control, point));
      control = point;
    }
  }
  reach(start);
  commands.push(['Z']);
  return commands;
}

/** Formats 12 (all of Unicode) and 4 (its first 65,536 characters). */
function characterMap(view: DataView, cmap: number): (codePoint: number) => number {
  const found = new Map<number, number>();
  for (let index = 0; index < view.getUint16(cmap + 2); index += 1) {
    const offset = cmap + view.getUint32(cmap + 4 + index * 8 + 4);
    found.set(view.getUint16(offset), offset);
  }
  const glyphs = new Map<number, number>();
  const twelve = found.get(12);
  if (twelve !== undefined) {
    for (let group = 0; group < view.getUint32(twelve + 12); group += 1) {
      const at = twelve + 16 + group * 12;
      const [from, to, glyph] = [view.getUint32(at), view.getUint32(at + 4), view.getUint32(at + 8)];
      for (let code = from; code <= to; code += 1) glyphs.set(code, glyph + code - from);
    }
    return (codePoint) => glyphs.get(codePoint) ?? 0;
  }
  const four = found.get(4);
  if (four === undefined) throw new Error('the font has no character map of format 4 or 12');
  const segments = view.getUint16(four + 6) / 2;
  for (let segment = 0; segment < segments; segment += 1) {
    const end = view.getUint16(four + 14 + segment * 2);
    const start = view.getUint16(four + 16 + (segments + segment) * 2);
    const delta = view.getInt16(four + 16 + (2 * segments + segment) * 2);
    const rangeAt = four + 16 + (3 * segments + segment) * 2;
    const range = view.getUint16(rangeAt);
    for (let code = start; code <= end && code !== 0xffff; code += 1) {
      const raw = range === 0 ? code : view.getUint16(rangeAt + range + (code - start) * 2);
      if (raw !== 0) glyphs.set(code, (raw + delta) & 0xffff);
    }
  }
  return (codePoint) => glyphs.get(codePoint) ?? 0;
}

const fonts = new Map<string, Font>();

/** The bundled font in one of its two weights. */
export function bundledFont(weight: keyof typeof fontFiles): Font {
  let font = fonts.get(weight);
  if (!font) {
    font = new Font(readFileSync(fontFiles[weight]));
    fonts.set(weight, font);
  }
  return font;
}
