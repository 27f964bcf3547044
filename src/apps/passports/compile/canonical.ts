import { CompileError } from './errors.ts';
import { sha256Hex, utf8 } from './hash.ts';
import { parseJson } from './json.ts';
import type { Hash, Json } from './types.ts';

/*
 * Canonical JSON (BPC-4): one text for one value.
 *
 * Keys are sorted by their UTF-8 bytes, there is no white space, numbers are integers within ±(2^53−1), strings are escaped
 * as in RFC 8785. With ASCII keys the bytes are those of RFC 8785, which sorts keys by UTF-16 units instead: the two orders
 * differ only for characters beyond U+FFFF.
 *
 * The type `Json` says what may come in; what slips past the type (a float, undefined, a Date, a lone surrogate) raises
 * CANONICAL_JSON_INVALID, and the message says where.
 */

/** Deeper than anything that is compiled, and far from the stack's end. */
export const deepest = 100;

export function canonical(value: Json): string {
  return write(value, [], false);
}

/** As `canonical`, and refuses keys that are not ASCII: payloads, proofs and receipts equal RFC 8785 byte for byte. */
export function canonicalAscii(value: Json): string {
  return write(value, [], true);
}

export const canonicalBytes = (value: Json): Uint8Array => utf8(canonicalAscii(value));

export const hashJson = (value: Json): Hash => sha256Hex(canonicalBytes(value));

/** Reads canonical JSON. A text that `canonical` would write differently is refused: a value has one text. */
export function parseCanonical(text: string): Json {
  const value = parseJson(text);
  if (canonical(value) !== text)
    throw new CompileError(
      'CANONICAL_JSON_INVALID',
      'the text is JSON but not canonical: keys sorted by their UTF-8 bytes, no white space, shortest escapes',
    );
  return value;
}

type Path = (string | number)[];

function write(value: unknown, path: Path, ascii: boolean): string {
  if (path.length > deepest) throw invalid(path, `is nested deeper than ${deepest} levels`);
  switch (typeof value) {
    case 'boolean':
      return value ? 'true' : 'false';
    case 'number':
      if (!Number.isSafeInteger(value))
        throw invalid(path, `is ${value}, which is no integer within ±(2^53−1)`);
      return Object.is(value, -0) ? '0' : String(value);
    case 'string':
      return quote(value, path);
    case 'object':
      if (value === null) return 'null';
      return Array.isArray(value) ? writeList(value, path, ascii) : writeObject(value, path, ascii);
    default:
      throw invalid(path, `is of type ${typeof value}, which JSON does not have`);
  }
}

function writeList(list: readonly unknown[], path: Path, ascii: boolean): string {
  let text = '[';
  for (let at = 0; at < list.length; at++) {
    path.push(at);
    text += (at === 0 ? '' : ',') + write(list[at], path, ascii);
    path.pop();
  }
  return `${text}]`;
}

function writeObject(object: object, path: Path, ascii: boolean): string {
  const prototype = Object.getPrototypeOf(object);
  if (prototype !== Object.prototype && prototype !== null)
    throw invalid(path, `is a ${object.constructor?.name ?? 'class instance'}, not a plain object`);
  const keys = Object.keys(object).sort(compareUtf8);
  let text = '{';
  for (const [at, key] of keys.entries()) {
    path.push(key);
    if (ascii && !isAscii(key)) throw invalid(path, 'has a key that is not ASCII');
    text += `${at === 0 ? '' : ','}${quote(key, path)}:${write((object as Record<string, unknown>)[key], path, ascii)}`;
    path.pop();
  }
  return `${text}}`;
}

/** JSON.stringify escapes as RFC 8785 does, but for lone surrogates, which it escapes and we refuse. */
function quote(text: string, path: Path): string {
  if (!text.isWellFormed()) throw invalid(path, 'has a lone surrogate, which UTF-8 cannot hold');
  return JSON.stringify(text);
}

const isAscii = (text: string): boolean => {
  for (let at = 0; at < text.length; at++) if (text.charCodeAt(at) > 0x7f) return false;
  return true;
};

/**
 * The order of UTF-8 bytes is that of code points. UTF-16 units have it but for surrogates (code points beyond U+FFFF),
 * which sort before U+E000…U+FFFF there and after them here.
 */
export function compareUtf8(a: string, b: string): number {
  const length = Math.min(a.length, b.length);
  for (let at = 0; at < length; at++) {
    const left = a.charCodeAt(at);
    const right = b.charCodeAt(at);
    if (left !== right) return rank(left) - rank(right);
  }
  return a.length - b.length;
}

const rank = (unit: number): number => (unit >= 0xd800 && unit <= 0xdfff ? unit + 0x10000 : unit);

const invalid = (path: Path, what: string): CompileError =>
  new CompileError('CANONICAL_JSON_INVALID', `the value at /${path.join('/')} ${what}`, { path: [...path] });
