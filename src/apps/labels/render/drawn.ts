import { type BarcodeType, barcodeTypes, placeBarcode } from './barcode.ts';
import { refuseMissing, TemplateError } from './errors.ts';
import { isJapanese, isRightToLeft } from './layout.ts';
import type { Lettering, Weight } from './lettering.ts';
import { breakLines, type LineRules, wordsOf } from './lines.ts';
import { priceParts } from './money.ts';
import { type Filling, fillPieces, optionalValue, type Piece, requiredValue } from './placeholders.ts';
import { capHeight, descentOf, drawable, isPlain, pathOf, widthOf } from './text.ts';
import { missingGlyphs } from './wide-fonts.ts';
import { escapeXml } from './xml.ts';

/** One of our own elements, which SVG does not have. It is drawn as paths when the template is filled. */
export interface Drawn {
  readonly element: DrawnElement;
  readonly attributes: ReadonlyMap<string, readonly Piece[]>;
  readonly content: readonly Piece[];
  readonly line: number;
}
export type DrawnElement = keyof typeof drawnElements;

const placed = ['x', 'y', 'width', 'fill', 'opacity'] as const;
const lettered = [...placed, 'font-size', 'font-weight', 'text-anchor'] as const;

/** Each with the attributes it takes. */
export const drawnElements = {
  'tally-text': [...lettered, 'lines', 'line-height', 'min-font-size', 'text-decoration', 'cut'],
  'tally-price': [...lettered, 'height', 'value'],
  'tally-barcode': [...placed, 'height', 'type', 'value', 'digits'],
} as const satisfies Record<string, readonly string[]>;

const shrinkStep = 0.5;
const maxLines = 20;
/** A price's decimals and its symbol, against its whole part. */
const smallShare = 0.52;
/** Room between whole part and what is beside it, against the size. */
const gapShare = 0.05;

/** Text that must not be cut shrinks to this size at last. */
const leastSize = 5;

export function draw(drawn: Drawn, filling: Filling): string {
  const given = new Attributes(drawn, filling);
  if (drawn.element === 'tally-text') return drawText(given, fillPieces(drawn.content, filling), filling);
  if (drawn.element === 'tally-price') return drawPrice(given, filling);
  return drawBarcode(given);
}

/** Characters of one text: more than a label has room for. */
const mostText = 4096;
/** Characters of a barcode: a larger QR code has more modules than a label has pixels, and takes long to make. */
const mostEncoded = 1024;

function drawText(given: Attributes, content: string, filling: Filling): string {
  if (content.length > mostText)
    given.fail(`is filled with ${content.length} characters; ${mostText} are the most`);
  const text = drawable(content);
  if (text === '') return '';
  const weight = given.weight('regular');
  const language = languageOf(filling);
  given.requireGlyphs(text, weight, language);
  const size = given.number('font-size', 1, 1000);
  const width = given.optionalNumber('width', 1, 4096) ?? Number.POSITIVE_INFINITY;
  const most = given.optionalNumber('lines', 1, maxLines) ?? 1;
  const isWhole = given.optionalOneOf('cut', ['yes', 'no']) === 'no';
  const smallest =
    given.optionalNumber('min-font-size', 1, size) ?? (isWhole ? Math.min(leastSize, size) : size);
  const { lines, lettering } = laidText(text, { size, smallest, weight, language }, { width, most });
  if (isWhole && isCut(text, lines))
    given.fail(`cannot show "${text.slice(0, 40)}" in ${width} pixels, and it may not be cut`);
  const lineHeight = (given.optionalNumber('line-height', 1, 1000) ?? size * 1.2) * (lettering.size / size);
  const struck = given.optionalOneOf('text-decoration', ['none', 'line-through']) === 'line-through';
  // What is read from right to left begins at the right edge of its area.
  const fromRight = width !== Number.POSITIVE_INFINITY && isRightToLeft(text, language) ? width : undefined;
  const paths = lines.map((line, index) => {
    const lineWidth = widthOf(line, lettering);
    const x = given.left(lineWidth, fromRight);
    const y = given.number('y') + Math.round(index * lineHeight);
    return pathOf(line, lettering, x, y) + (struck ? strike(x, y, lineWidth, lettering) : '');
  });
  return given.path(paths.join(''));
}

const languageOf = (filling: Filling): string => optionalValue('locale', filling);

/** As large as whole words allow, then as split words allow; cut only where the smallest size does not help either. */
function laidText(
  text: string,
  { size, smallest, weight, language }: Lettering & { readonly smallest: number },
  rules: LineRules,
): { readonly lines: readonly string[]; readonly lettering: Lettering } {
  const at = (px: number): Lettering => ({ weight, size: px, ...(language && { language }) });
  const split = { ...rules, hyphenate: true };
  const whole = shrunk(size, smallest, (px) => holdsWords(text, at(px), rules));
  if (whole !== undefined) return { lines: breakLines(text, at(whole), rules), lettering: at(whole) };
  const fitting = shrunk(size, smallest, (px) => !isCut(text, breakLines(text, at(px), split))) ?? smallest;
  return { lines: breakLines(text, at(fitting), split), lettering: at(fitting) };
}

/** A diagonal line, as a pen strikes a price out: a horizontal line would hide the digits. */
function strike(x: number, y: number, width: number, lettering: Lettering): string {
  const thickness = Math.round(Math.max(1, lettering.size / 14) * 100) / 100;
  const [left, right, foot] = [Math.round(x) - 2, Math.round(x + width) + 2, Math.round(y)];
  const head = foot - Math.round(capHeight(lettering) * 0.9);
  // Same winding direction as the letters: the opposite one would cut holes into them.
  return `M${left} ${foot - thickness}L${right} ${head - thickness}v${thickness}L${left} ${foot}z`;
}

/** The largest size that fits, in half pixels from `smallest` to `size`; undefined if none does. */
function shrunk(size: number, smallest: number, holds: (size: number) => boolean): number | undefined {
  if (holds(size)) return size;
  if (size === smallest || !holds(smallest)) return undefined;
  let [fits, fails] = [0, Math.ceil((size - smallest) / shrinkStep)];
  while (fails - fits > 1) {
    const middle = (fits + fails) >> 1;
    if (holds(smallest + middle * shrinkStep)) fits = middle;
    else fails = middle;
  }
  return smallest + fits * shrinkStep;
}

/** Nothing is cut off, and no word is split. */
function holdsWords(text: string, lettering: Lettering, rules: LineRules): boolean {
  if (wordsOf(text).some((word) => widthOf(word, lettering) > rules.width)) return false;
  return !isCut(text, breakLines(text, lettering, rules));
}

/** Whether something is missing: hyphens at the ends of lines may have been added. */
const isCut = (text: string, lines: readonly string[]): boolean =>
  lettersOf(lines.join('')) !== lettersOf(text);

const lettersOf = (text: string): string => text.replace(/[\s\u00ad-]/g, '');

/** A price as shelves show it: the whole part large, the decimals small and high, the symbol beside them. */
function drawPrice(given: Attributes, filling: Filling): string {
  const amount = given.text('value');
  if (amount === '') return '';
  const parts = priceParts(
    amount,
    requiredValue('currency', filling),
    requiredValue('locale', filling),
    'value',
  );
  const weight = given.weight('bold');
  given.requireGlyphs(parts.symbol, weight, languageOf(filling));
  const largest = given.number('font-size', 1, 1000);
  const width = given.optionalNumber('width', 1, 4096) ?? Number.POSITIVE_INFINITY;
  // With a height, (x, y) is the foot of an area and the figures stand in the middle of it; else y is their baseline.
  const height = given.optionalNumber('height', 1, 4096) ?? Number.POSITIVE_INFINITY;
  const least = Math.min(largest, 6);
  const size =
    shrunk(largest, least, (at) => {
      const laid = layPrice(parts, { weight, size: at });
      return laid.width <= width && laid.above + laid.below <= height;
    }) ?? least;
  const { runs, width: total, above, below } = layPrice(parts, { weight, size });
  const left = given.left(total);
  const lift = height === Number.POSITIVE_INFINITY ? 0 : Math.round((height - above - below) / 2 + below);
  const y = given.number('y') - lift;
  return given.path(
    runs.map(({ text, lettering, x, rise }) => pathOf(text, lettering, left + x, y - rise)).join(''),
  );
}

interface Run {
  readonly text: string;
  readonly lettering: Lettering;
  readonly x: number;
  /** Above the baseline. */
  readonly rise: number;
}

interface LaidPrice {
  readonly runs: readonly Run[];
  readonly width: number;
  /** Of the baseline. */
  readonly above: number;
  readonly below: number;
}

function layPrice(parts: ReturnType<typeof priceParts>, large: Lettering): LaidPrice {
  const small: Lettering = { weight: large.weight, size: Math.round(large.size * smallShare * 2) / 2 };
  const symbol: Lettering = { weight: large.weight, size: Math.round(large.size * smallShare * 0.8 * 2) / 2 };
  const gap = Math.max(1, Math.round(large.size * gapShare));
  const high = (of: Lettering) => capHeight(large) - capHeight(of);
  const runs: Run[] = [];
  let x = 0;
  const put = (text: string, lettering: Lettering, rise: number, at = x): number => {
    runs.push({ text, lettering, x: at, rise });
    return at + widthOf(text, lettering);
  };
  if (parts.symbolFirst && parts.symbol !== '') x = put(parts.symbol, small, high(small)) + gap;
  x = put(parts.whole + parts.separator, large, 0);
  const column = x + (parts.separator === '' ? gap : 0);
  if (parts.decimals !== '') x = put(parts.decimals, small, high(small), column);
  // The symbol stands under the decimals: it takes no width of its own, which the figures need.
  if (!parts.symbolFirst && parts.symbol !== '') x = Math.max(x, put(parts.symbol, symbol, 0, column));
  return { runs, width: x, above: capHeight(large), below: descentOf(parts.whole + parts.separator, large) };
}

function drawBarcode(given: Attributes): string {
  const value = given.text('value').trim();
  if (value === '') return '';
  if (value.length > mostEncoded)
    given.fail(`has a value of ${value.length} characters; ${mostEncoded} are the most`);
  const type = given.oneOf('type', barcodeTypes) as BarcodeType;
  const box = {
    x: given.number('x'),
    y: given.number('y'),
    width: given.number('width', 1, 4096),
    height: given.number('height', 1, 4096),
  };
  const digitsSize = given.optionalNumber('digits', 4, 100) ?? 0;
  const lettering: Lettering = { weight: 'regular', size: digitsSize };
  const digitsHeight = digitsSize === 0 ? 0 : Math.ceil(capHeight(lettering)) + 2;
  const symbol = placeBarcode(type, value, box, digitsHeight, given.line);
  const digits =
    digitsSize === 0 || symbol.digits === ''
      ? ''
      : pathOf(
          symbol.digits,
          lettering,
          symbol.middle - widthOf(symbol.digits, lettering) / 2,
          symbol.bottom + digitsHeight,
        );
  // The quiet zone is always white: a scanner needs it.
  return `<rect x="${box.x}" y="${box.y}" width="${box.width}" height="${box.height}" fill="#fff"/>${given.path(symbol.path, ' shape-rendering="crispEdges"')}${given.path(digits)}`;
}

/** The attributes of one element, filled and checked. */
class Attributes {
  readonly line: number;
  readonly #drawn: Drawn;
  readonly #filling: Filling;

  constructor(drawn: Drawn, filling: Filling) {
    this.#drawn = drawn;
    this.#filling = filling;
    this.line = drawn.line;
  }

  optionalText(name: string): string | undefined {
    const pieces = this.#drawn.attributes.get(name);
    return pieces === undefined ? undefined : fillPieces(pieces, this.#filling);
  }

  text(name: string): string {
    return this.optionalText(name) ?? this.fail(`has no ${name}`);
  }

  optionalNumber(name: string, least = -4096, most = 4096): number | undefined {
    const text = this.optionalText(name);
    if (text === undefined) return undefined;
    const value = /^-?\d+(?:\.\d+)?$/.test(text.trim()) ? Number(text) : Number.NaN;
    if (!(value >= least && value <= most))
      this.fail(`has ${name}="${text}"; it must be a number of pixels from ${least} to ${most}`);
    return value;
  }

  number(name: string, least?: number, most?: number): number {
    return this.optionalNumber(name, least, most) ?? this.fail(`has no ${name}`);
  }

  oneOf(name: string, known: readonly string[]): string {
    const value = this.text(name);
    return known.includes(value)
      ? value
      : this.fail(`has ${name}="${value}"; it must be one of ${known.join(', ')}`);
  }

  optionalOneOf(name: string, known: readonly string[]): string | undefined {
    return this.optionalText(name) === undefined ? undefined : this.oneOf(name, known);
  }

  weight(otherwise: Weight): Weight {
    const text = this.optionalText('font-weight');
    if (text === undefined) return otherwise;
    if (text === 'bold' || /^[6-9]00$/.test(text)) return 'bold';
    return text === 'normal' || /^[1-5]00$/.test(text)
      ? 'regular'
      : this.fail(`has font-weight="${text}"; it must be normal or bold`);
  }

  /** Refuses what would be drawn as an empty box. */
  requireGlyphs(text: string, weight: Weight, language: string): void {
    const shown = text.replaceAll('\u00ad', '');
    if (isPlain(shown, weight)) return;
    refuseMissing(missingGlyphs(shown, weight, isJapanese(shown, language)), this.line);
  }

  /** Where something of this width begins. `fromRight`: it starts at the right of an area of that width. */
  left(width: number, fromRight?: number): number {
    const x = this.number('x');
    const anchor = this.optionalText('text-anchor') ?? 'start';
    if (anchor === 'start') return fromRight === undefined ? x : x + fromRight - width;
    if (anchor === 'middle') return x - width / 2;
    return anchor === 'end'
      ? x - width
      : this.fail(`has text-anchor="${anchor}"; it must be start, middle or end`);
  }

  path(data: string, more = ''): string {
    if (data === '') return '';
    const paint = ['fill', 'opacity']
      .map((name) => [name, this.optionalText(name)] as const)
      .flatMap(([name, value]) => (value === undefined ? [] : [` ${name}="${escapeXml(value)}"`]));
    return `<path d="${data}"${paint.join('')}${more}/>`;
  }

  fail(problem: string): never {
    throw new TemplateError(`<${this.#drawn.element}> ${problem}.`, { line: this.line });
  }
}
