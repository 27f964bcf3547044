import bwipjs from 'bwip-js/node';
import { messageOf } from '../../../engine/errors.ts';
import { TemplateError } from './errors.ts';

/** The dark modules of a barcode, with the blank that must stay around it. */
interface Symbol {
  /** Modules, quiet zone included. */
  readonly width: number;
  /** Undefined for bars: as high as there is room. */
  readonly height: number | undefined;
  /** Dark rectangles in modules. */
  readonly dark: readonly { readonly x: number; readonly y: number; readonly width: number }[];
  /** What is written below, for people. */
  readonly digits: string;
}

export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/** Left and right of the bars, in modules, as GS1 and ISO/IEC 15417 ask for. */
const quietZones = {
  ean13: [11, 7],
  ean8: [7, 7],
  upca: [9, 9],
  code128: [10, 10],
  itf14: [10, 10],
} as const;
type Bars = keyof typeof quietZones;
const qrQuiet = 4;
const byLength: Readonly<Record<number, Bars>> = { 8: 'ean8', 12: 'upca', 13: 'ean13', 14: 'itf14' };
export const barcodeTypes = ['gtin', 'ean13', 'ean8', 'upca', 'code128', 'qrcode'] as const;
export type BarcodeType = (typeof barcodeTypes)[number];

/** Whole pixels per module, at least one: a bar of half a pixel cannot be read. */
export interface Placed {
  /** Path data of the dark modules. */
  readonly path: string;
  readonly digits: string;
  /** Middle of the symbol and the end of its bars, for the digits. */
  readonly middle: number;
  readonly bottom: number;
}

export function placeBarcode(
  type: BarcodeType,
  value: string,
  box: Box,
  digitsHeight: number,
  line: number,
): Placed {
  const symbol = encode(type, value, line);
  const across = Math.floor(box.width / symbol.width);
  const module =
    symbol.height === undefined ? across : Math.min(across, Math.floor(box.height / symbol.height));
  const barHeight = symbol.height === undefined ? box.height - digitsHeight : module;
  if (module < 1 || barHeight < 1)
    throw new TemplateError(
      `A ${type} barcode of "${value}" needs ${symbol.width} pixels across${symbol.height === undefined ? '' : ` and ${symbol.height} down`}; the template leaves it ${box.width} × ${box.height}.`,
      { line },
    );
  const left = Math.round(box.x + (box.width - symbol.width * module) / 2);
  const top = Math.round(
    symbol.height === undefined ? box.y : box.y + (box.height - symbol.height * module) / 2,
  );
  const path = symbol.dark
    .map(
      ({ x, y, width }) =>
        `M${left + x * module} ${top + y * module}h${width * module}v${barHeight}h-${width * module}z`,
    )
    .join('');
  return {
    path,
    digits: symbol.digits,
    middle: box.x + box.width / 2,
    bottom: top + (symbol.height ?? 0) * module + (symbol.height === undefined ? barHeight : 0),
  };
}

const encoded = new Map<string, Symbol>();
const mostEncoded = 2000;

/** A QR code takes milliseconds to make, and every label of a product bears the same. */
function encode(type: BarcodeType, value: string, line: number): Symbol {
  const key = `${type} ${value}`;
  let symbol = encoded.get(key);
  if (!symbol) {
    symbol = type === 'qrcode' ? qrCode(value, line) : bars(type, value, line);
    if (encoded.size >= mostEncoded) encoded.clear();
    encoded.set(key, symbol);
  }
  return symbol;
}

function bars(type: Exclude<BarcodeType, 'qrcode'>, value: string, line: number): Symbol {
  const bcid = type === 'gtin' ? byLength[value.length] : type;
  if (bcid === undefined || (bcid !== 'code128' && !/^\d+$/.test(value)))
    throw new TemplateError(`"${value}" is not a GTIN: that is 8, 12, 13 or 14 digits.`, { line });
  if (bcid === 'code128' && !/^[\x20-\x7e]+$/.test(value))
    throw new TemplateError(
      `"${value}" cannot be written as code128: only letters, digits and signs of ASCII.`,
      { line },
    );
  if (bcid !== 'code128' && !hasItsCheckDigit(value))
    throw new TemplateError(
      `"${value}" has a wrong check digit: a ${type} barcode of it could not be read.`,
      { line },
    );
  const [symbol] = drawn(bcid, value, line);
  if (!symbol || !('sbs' in symbol))
    throw new TemplateError(`No ${type} barcode can be made of "${value}".`, { line });
  const [before, after] = quietZones[bcid];
  const dark: { x: number; y: number; width: number }[] = [];
  let x: number = before;
  symbol.sbs.forEach((width, index) => {
    if (index % 2 === 0) dark.push({ x, y: 0, width });
    x += width;
  });
  return { width: x + after, height: undefined, dark, digits: spaced(bcid, value) };
}

function qrCode(value: string, line: number): Symbol {
  const [symbol] = drawn('qrcode', value, line);
  if (!symbol || !('pixs' in symbol))
    throw new TemplateError(`No QR code can be made of "${value}".`, { line });
  const { pixs, pixx } = symbol;
  const dark = pixs.flatMap((bit, index) =>
    bit === 1 ? [{ x: (index % pixx) + qrQuiet, y: Math.floor(index / pixx) + qrQuiet, width: 1 }] : [],
  );
  const size = pixx + 2 * qrQuiet;
  return { width: size, height: size, dark, digits: '' };
}

function drawn(bcid: string, text: string, line: number) {
  try {
    return bwipjs.raw({ bcid, text });
  } catch (error) {
    const reason = messageOf(error).replace(/^.*?: /, '');
    throw new TemplateError(`No ${bcid} barcode can be made of "${text.slice(0, 60)}": ${reason}.`, {
      line,
      cause: error,
    });
  }
}

/** GS1: digits weigh 3 and 1 by turns from the right. */
function hasItsCheckDigit(gtin: string): boolean {
  let sum = 0;
  for (let index = 0; index < gtin.length; index += 1)
    sum += Number(gtin[gtin.length - 1 - index]) * (index % 2 === 0 ? 1 : 3);
  return sum % 10 === 0;
}

const spaced = (bcid: Bars, value: string): string =>
  bcid === 'ean13'
    ? `${value.slice(0, 1)} ${value.slice(1, 7)} ${value.slice(7)}`
    : bcid === 'ean8'
      ? `${value.slice(0, 4)} ${value.slice(4)}`
      : value;
