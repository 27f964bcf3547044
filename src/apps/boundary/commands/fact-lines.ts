/** What `facts append --lines` reads: a JSON object in each line. */
import { isUtf8 } from 'node:buffer';
import { messageOf } from '../../../engine/errors.ts';
import { usage } from '../../../host/cli/exit.ts';
import { canonicalText, deepest } from '../domain/json.ts';

export interface Line {
  /** Counted from 1, empty lines included. */
  readonly number: number;
  readonly value: Readonly<Record<string, unknown>>;
}

/**
 * Refuses what JSON.parse would change without a word. Behind that a line can be taken apart, and its object written again. `name`
 * is that of the file, for errors.
 */
export function linesIn(bytes: Buffer, name: string): Line[] {
  // Decoders put a replacement in the place of what is not UTF-8.
  if (!isUtf8(bytes)) throw usage(`${name} is not UTF-8; nothing was appended`);
  return bytes
    .toString('utf8')
    .split('\n')
    .flatMap((text, i) => (text.trim() === '' ? [] : [lineOf(text, i + 1)]));
}

function lineOf(text: string, number: number): Line {
  try {
    // A level more than the object of a fact may have.
    canonicalText(text, `line ${number}:`, deepest + 1);
  } catch (error) {
    throw usage(`${messageOf(error)}; nothing was appended`);
  }
  const value: unknown = JSON.parse(text);
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw usage(`line ${number}: is not a JSON object; nothing was appended`);
  return { number, value: value as Line['value'] };
}
