import { invalid } from './errors.ts';

/*
 * A strict reader of JSON texts, and canonical JSON (RFC 8785) of what it has read (decision 28).
 *
 * What other readers would silently change is refused, with its place: a member that is there twice, an integer whose digits
 * do not survive in a double, a number beyond the range of doubles, a lone surrogate. Decimals become the nearest double, as
 * in every reader of JSON: "0.10000000000000001", as many writers print it, is 0.1.
 *
 * JSON.parse does the work; the walk over the text only finds what JSON.parse does not tell of.
 */

/** Far from the end of the stack, of ours and of other readers. */
export const deepest = 100;

/** The canonical form of a JSON text. `field` names it in errors. */
export function canonicalText(text: string, field: string): string {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw invalid(field, `is not JSON: ${(error as Error).message}`);
  }
  new Walk(text, field).value(0);
  return write(value, field);
}

/** One pass over a text that is known to be JSON. */
class Walk {
  readonly #text: string;
  readonly #field: string;
  #at = 0;

  constructor(text: string, field: string) {
    this.#text = text;
    this.#field = field;
  }

  value(depth: number): void {
    if (depth > deepest) throw invalid(this.#field, `is nested deeper than ${deepest} levels`);
    switch (this.#next()) {
      case '{':
        return this.#members(depth);
      case '[':
        return this.#items(depth);
      case '"':
        this.#string();
        return;
      case 't':
      case 'n':
        this.#at += 4;
        return;
      case 'f':
        this.#at += 5;
        return;
      default:
        this.#number();
    }
  }

  #members(depth: number): void {
    const names = new Set<string>();
    this.#at++;
    while (this.#next() !== '}') {
      const at = this.#at;
      const raw = this.#string();
      const name = raw.includes('\\') ? (JSON.parse(raw) as string) : raw.slice(1, -1);
      if (names.has(name))
        throw invalid(this.#field, `has the member ${JSON.stringify(name)} twice (character ${at + 1})`);
      names.add(name);
      this.#next();
      this.#at++; // the colon
      this.value(depth + 1);
      if (this.#next() === ',') this.#at++;
    }
    this.#at++;
  }

  #items(depth: number): void {
    this.#at++;
    while (this.#next() !== ']') {
      this.value(depth + 1);
      if (this.#next() === ',') this.#at++;
    }
    this.#at++;
  }

  /** Returns it as it is written, with its quotes. */
  #string(): string {
    const start = this.#at;
    let end = start + 1;
    while (this.#text[end] !== '"') end += this.#text[end] === '\\' ? 2 : 1;
    this.#at = end + 1;
    return this.#text.slice(start, this.#at);
  }

  #number(): void {
    number.lastIndex = this.#at;
    const raw = number.exec(this.#text)?.[0] ?? '';
    // Up to 15 digits a double holds every integer, and no exponent can be too large.
    if (raw.length > 15 || /[eE]/.test(raw)) this.#check(raw);
    this.#at += raw.length;
  }

  #check(raw: string): void {
    const value = Number(raw);
    const where = `(character ${this.#at + 1})`;
    if (!Number.isFinite(value))
      throw invalid(this.#field, `has the number ${raw}, which no double can hold ${where}`);
    if (/^-?\d+$/.test(raw) && String(value) !== raw)
      throw invalid(
        this.#field,
        `has the integer ${raw}, which readers of JSON would change to ${value} ${where}: send it as a string`,
      );
  }

  /** The next character that is not white space. */
  #next(): string | undefined {
    space.lastIndex = this.#at;
    this.#at += space.exec(this.#text)?.[0].length ?? 0;
    return this.#text[this.#at];
  }
}

const space = /[ \t\n\r]*/y;
const number = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y;

/** RFC 8785: members sorted by their UTF-16 units, no white space; numbers and strings as JSON.stringify writes them. */
function write(value: unknown, field: string): string {
  if (typeof value === 'string') return quote(value, field);
  if (value === null || typeof value !== 'object') return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map((each) => write(each, field)).join(',')}]`;
  const object = value as Readonly<Record<string, unknown>>;
  const members = Object.keys(object)
    .sort()
    .map((name) => `${quote(name, field)}:${write(object[name], field)}`);
  return `{${members.join(',')}}`;
}

function quote(text: string, field: string): string {
  if (!text.isWellFormed()) throw invalid(field, 'has a lone surrogate, which UTF-8 cannot hold');
  return JSON.stringify(text);
}
