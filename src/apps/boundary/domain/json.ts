import { invalid } from './errors.ts';

/*
 * A strict reader of JSON texts, and canonical JSON (RFC 8785) of what it has read (decision 28).
 *
 * What other readers would silently change is refused, with its place: a member that is there twice, an integer whose digits
 * do not survive in a double, a number beyond the range of doubles, a lone surrogate. Decimals become the nearest double, as
 * in every reader of JSON: "0.10000000000000001", as many writers print it, is 0.1.
 *
 * JSON.parse does the work; the walk over the text only finds what JSON.parse does not tell of. A text that JSON.stringify writes
 * back as it was hides nothing of that kind, and needs no walk: nearly all do, since programs wrote them.
 */

/** Far from the end of the stack, of ours and of other readers. */
export const deepest = 100;

/** The canonical form of a JSON text. `field` names it in errors. */
export function canonicalText(text: string, field: string, levels = deepest): string {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw invalid(field, `is not JSON: ${(error as Error).message}`);
  }
  // First, since it bounds the depth: JSON.stringify would run out of stack.
  const isInOrder = checkDepthAndOrder(value, 0, { field, levels });
  const plain = JSON.stringify(value);
  if (plain !== text) new Walk(text, field).value(0);
  // JSON.stringify writes a lone surrogate as an escape that begins like this.
  return isInOrder && !plain.includes('\\ud') ? plain : write(value, field);
}

interface DepthLimit {
  readonly field: string;
  readonly levels: number;
}

/**
 * Throws if the value is nested too deeply. Returns whether the members of every object are in canonical order. One pass for both:
 * every fact comes through here.
 */
function checkDepthAndOrder(value: unknown, depth: number, limit: DepthLimit): boolean {
  if (depth > limit.levels) throw invalid(limit.field, `is nested deeper than ${limit.levels} levels`);
  if (value === null || typeof value !== 'object') return true;
  let sorted = true;
  if (Array.isArray(value)) {
    for (const each of value) if (!checkDepthAndOrder(each, depth + 1, limit)) sorted = false;
    return sorted;
  }
  const object = value as Readonly<Record<string, unknown>>;
  let before = '';
  for (const name of Object.keys(object)) {
    if (!checkDepthAndOrder(object[name], depth + 1, limit) || before > name) sorted = false;
    before = name;
  }
  return sorted;
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
  let text = '';
  if (Array.isArray(value)) {
    for (const each of value) text += `${text === '' ? '' : ','}${write(each, field)}`;
    return `[${text}]`;
  }
  const object = value as Readonly<Record<string, unknown>>;
  for (const name of Object.keys(object).sort())
    text += `${text === '' ? '' : ','}${quote(name, field)}:${write(object[name], field)}`;
  return `{${text}}`;
}

/** What is written as it is, between quotes. */
const ordinary = /^[\x20\x21\x23-\x5b\x5d-\x7e]*$/;

function quote(text: string, field: string): string {
  if (ordinary.test(text)) return `"${text}"`;
  if (!text.isWellFormed()) throw invalid(field, 'has a lone surrogate, which UTF-8 cannot hold');
  return JSON.stringify(text);
}
