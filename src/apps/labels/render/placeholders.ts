import { TemplateError } from './errors.ts';
import { day, money, percentOff, priceParts } from './money.ts';
import type { Palette } from './panel.ts';

/** `{{name}}`, `{{name?}}`, or either with `|format`. */
export interface Slot {
  readonly name: string;
  /** Without a value it is empty; others must have one. */
  readonly optional: boolean;
  readonly format: Format | undefined;
  readonly line: number;
}
export type Piece = string | Slot;

/** What a template is filled with: the values, and colours that depend on the panel. */
export interface Filling {
  readonly values: Readonly<Record<string, string>>;
  readonly palette: Palette;
}

const longest = 2048;

type Formatter = (value: string, filling: Filling, name: string) => string;

const priced =
  (show: (parts: ReturnType<typeof priceParts>) => string): Formatter =>
  (value, filling, name) =>
    show(priceParts(value, requiredValue('currency', filling), requiredValue('locale', filling), name));

const formats = {
  money: (value, filling, name) =>
    money(value, requiredValue('currency', filling), requiredValue('locale', filling), name),
  amount: priced(({ whole, separator, decimals }) => whole + separator + decimals),
  whole: priced(({ whole }) => whole),
  decimals: priced(({ decimals }) => decimals),
  off: (value, filling) =>
    percentOff(value, requiredValue('price', filling), requiredValue('locale', filling)),
  day: (value, filling, name) => day(value, requiredValue('locale', filling), name),
  upper: (value) => value.toUpperCase(),
  lower: (value) => value.toLowerCase(),
} satisfies Record<string, Formatter>;
export type Format = keyof typeof formats;

const needs: Partial<Record<Format, readonly string[]>> = {
  money: ['currency', 'locale'],
  amount: ['currency', 'locale'],
  whole: ['currency', 'locale'],
  decimals: ['currency', 'locale'],
  off: ['price', 'locale'],
  day: ['locale'],
};

/** The third pigment, and what can be read on it; on a panel without one: black, and white. */
const colours: Record<string, Record<Palette, string>> = {
  '@accent': { bw: '#000', bwr: '#f00', bwy: '#ff0' },
  '@on-accent': { bw: '#fff', bwr: '#fff', bwy: '#000' },
};

/** Splits text into fixed parts and placeholders. */
export function readPieces(text: string, line: number): readonly Piece[] {
  const pieces: Piece[] = [];
  let at = 0;
  for (const found of text.matchAll(/\{\{([^{}]*)\}\}/g)) {
    if (found.index > at) pieces.push(text.slice(at, found.index));
    pieces.push(readSlot(found[1] ?? '', line));
    at = found.index + found[0].length;
  }
  if (at < text.length) pieces.push(text.slice(at));
  if (pieces.some((piece) => typeof piece === 'string' && /\{\{|\}\}/.test(piece)))
    throw new TemplateError(`"${text.trim().slice(0, 60)}" has a {{ or }} without its other half.`, { line });
  return pieces;
}

function readSlot(inside: string, line: number): Slot {
  const [written = '', format, ...more] = inside.split('|').map((part) => part.trim());
  const optional = written.endsWith('?');
  const name = optional ? written.slice(0, -1) : written;
  if (name.startsWith('@')) {
    if (!Object.hasOwn(colours, written) || format !== undefined)
      throw new TemplateError(
        `{{${inside}}} is not known; there is ${Object.keys(colours)
          .map((known) => `{{${known}}}`)
          .join(' and ')}.`,
        { line, placeholder: name },
      );
  } else if (!/^[A-Za-z][\w.-]{0,63}$/.test(name) || more.length > 0)
    throw new TemplateError(
      `{{${inside}}} is not a placeholder; write {{name}}, {{name?}} or {{name|format}}.`,
      {
        line,
      },
    );
  if (format !== undefined && !Object.hasOwn(formats, format))
    throw new TemplateError(
      `{{${inside}}}: there is no format "${format}"; there is ${Object.keys(formats).join(', ')}.`,
      {
        line,
        placeholder: name,
      },
    );
  return { name, optional, format: format as Format | undefined, line };
}

/** The values that these pieces require. */
export const namesIn = (pieces: readonly Piece[]): readonly string[] =>
  pieces.flatMap((piece) =>
    typeof piece === 'string' || piece.name.startsWith('@')
      ? []
      : [...(piece.optional ? [] : [piece.name]), ...(piece.format ? (needs[piece.format] ?? []) : [])],
  );

/** The pieces as one text, not escaped. An empty value stays empty, whatever its format. */
export const fillPieces = (pieces: readonly Piece[], filling: Filling): string =>
  pieces.map((piece) => (typeof piece === 'string' ? piece : fillSlot(piece, filling))).join('');

export function fillSlot({ name, optional, format, line }: Slot, filling: Filling): string {
  const colour = colours[name]?.[filling.palette];
  if (colour !== undefined) return colour;
  const value = optional ? optionalValue(name, filling) : requiredValue(name, filling, line);
  return value === '' || format === undefined ? value : formats[format](value, filling, name);
}

export function requiredValue(name: string, filling: Filling, line?: number): string {
  if (!Object.hasOwn(filling.values, name))
    throw new TemplateError(`There is no value for {{${name}}}.`, {
      placeholder: name,
      ...(line !== undefined && { line }),
    });
  return optionalValue(name, filling);
}

/** Empty where there is none. */
export function optionalValue(name: string, { values }: Filling): string {
  const value = (Object.hasOwn(values, name) ? values[name] : undefined) ?? '';
  if (value.length > longest)
    throw new TemplateError(
      `The value for {{${name}}} has ${value.length} characters; ${longest} are the most.`,
      { placeholder: name },
    );
  return value;
}
