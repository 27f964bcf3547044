import { CompileError } from './errors.ts';
import { atOnce, type Slices } from './rules/slices.ts';
import type { Json } from './types.ts';

/*
 * A strict reader of JSON texts. JSON.parse keeps the last of two equal keys, rounds numbers, and lets lone surrogates
 * through: two readers could see two values in one text that was signed. Here each of these is an error with its position.
 */

const deepest = 100;

export interface JsonOptions {
  /** A number is given as it is written, so that decimals lose nothing. */
  readonly numbersAsText?: boolean;
  /** Default: none. What is beyond one is an error with the name of the limit in its details. */
  readonly limits?: JsonLimits;
}

/** A value can take a hundred times the memory of its text: two characters are an object. */
export interface JsonLimits {
  /** Of one list. */
  readonly elements: number;
  /** Of one object. */
  readonly keys: number;
  /** Of the whole text, those in lists and objects included. */
  readonly values: number;
}

const unlimited: JsonLimits = { elements: Infinity, keys: Infinity, values: Infinity };

/** Values that are read in one slice. */
const valuesInASlice = 2000;

export const parseJson = (text: string, options: JsonOptions = {}): Json =>
  atOnce(parsingJson(text, options));

/** The same in slices. */
export const parsingJson = (text: string, options: JsonOptions = {}): Slices<Json> =>
  new Reader(text, options).text();

class Reader {
  readonly #text: string;
  readonly #numbersAsText: boolean;
  readonly #limits: JsonLimits;
  #values = 0;
  #pauseAt = valuesInASlice;
  #at = 0;

  constructor(text: string, { numbersAsText = false, limits = unlimited }: JsonOptions) {
    this.#text = text;
    this.#numbersAsText = numbersAsText;
    this.#limits = limits;
  }

  *text(): Slices<Json> {
    const value = this.#holdsOthers(0) ? yield* this.#container(0) : this.#single();
    this.#space();
    if (this.#at < this.#text.length) throw this.#invalid('goes on after the end of the value');
    return value;
  }

  /** Goes to the next value, and tells whether it is an object or a list. */
  #holdsOthers(depth: number): boolean {
    if (depth > deepest) throw this.#invalid(`is nested deeper than ${deepest} levels`);
    this.#within('values', ++this.#values);
    this.#space();
    const first = this.#text[this.#at];
    return first === '{' || first === '[';
  }

  #single(): Json {
    switch (this.#text[this.#at]) {
      case '"':
        return this.#string();
      case 't':
        return this.#word('true', true);
      case 'f':
        return this.#word('false', false);
      case 'n':
        return this.#word('null', null);
      default:
        return this.#number();
    }
  }

  #container(depth: number): Slices<Json> {
    return this.#text[this.#at] === '{' ? this.#object(depth) : this.#list(depth);
  }

  #isPauseDue(): boolean {
    if (this.#values < this.#pauseAt) return false;
    this.#pauseAt = this.#values + valuesInASlice;
    return true;
  }

  *#object(depth: number): Slices<Json> {
    this.#at++;
    // Without a prototype: a key `__proto__` is a key like any other.
    const object: Record<string, Json> = Object.create(null);
    for (let keys = 0; ; keys++) {
      this.#space();
      if (keys === 0 && this.#take('}')) return object;
      if (this.#text[this.#at] !== '"') throw this.#invalid('has no key where one must be');
      const key = this.#string();
      if (Object.hasOwn(object, key)) throw this.#invalid(`has the key ${JSON.stringify(key)} twice`);
      this.#space();
      if (!this.#take(':')) throw this.#invalid('has no colon after a key');
      this.#within('keys', keys + 1);
      const inner = depth + 1;
      object[key] = this.#holdsOthers(inner) ? yield* this.#container(inner) : this.#single();
      if (this.#isPauseDue()) yield;
      this.#space();
      if (this.#take('}')) return object;
      if (!this.#take(',')) throw this.#invalid('has neither a comma nor a closing brace');
    }
  }

  *#list(depth: number): Slices<Json> {
    this.#at++;
    const list: Json[] = [];
    this.#space();
    if (this.#take(']')) return list;
    for (;;) {
      const inner = depth + 1;
      list.push(this.#holdsOthers(inner) ? yield* this.#container(inner) : this.#single());
      if (this.#isPauseDue()) yield;
      this.#within('elements', list.length);
      this.#space();
      if (this.#take(']')) return list;
      if (!this.#take(',')) throw this.#invalid('has neither a comma nor a closing bracket');
    }
  }

  #string(): string {
    const start = this.#at;
    for (let at = start + 1; ; at++) {
      const unit = this.#text.charCodeAt(at);
      // NaN: the text is at its end.
      if (!(unit >= 0x20))
        throw this.#invalid('has a string that does not end, or a control character in one');
      if (unit === 0x5c) at++;
      else if (unit === 0x22) {
        this.#at = at + 1;
        break;
      }
    }
    const parsed = this.#unescape(start);
    if (parsed?.isWellFormed()) return parsed;
    this.#at = start;
    throw this.#invalid(
      parsed === undefined
        ? 'has a string with an escape that JSON does not know'
        : 'has a lone surrogate, which UTF-8 cannot hold',
    );
  }

  #unescape(start: number): string | undefined {
    try {
      return JSON.parse(this.#text.slice(start, this.#at));
    } catch {
      return undefined;
    }
  }

  #number(): number | string {
    number.lastIndex = this.#at;
    const found = number.exec(this.#text)?.[0];
    if (!found) throw this.#invalid('has something that is no JSON value');
    if (this.#numbersAsText) {
      this.#at += found.length;
      return found;
    }
    if (!/^-?\d+$/.test(found))
      throw this.#invalid(`has ${found}, which is no integer; write decimals as scaled integers`);
    const parsed = Number(found);
    if (!Number.isSafeInteger(parsed) || Object.is(parsed, -0))
      throw this.#invalid(`has ${found}, which is no integer within ±(2^53−1)`);
    this.#at += found.length;
    return parsed;
  }

  #word<T>(word: string, value: T): T {
    if (!this.#text.startsWith(word, this.#at)) throw this.#invalid('has something that is no JSON value');
    this.#at += word.length;
    return value;
  }

  #space(): void {
    while (this.#at < this.#text.length && ' \t\n\r'.includes(this.#text[this.#at] ?? '')) this.#at++;
  }

  #take(character: string): boolean {
    if (this.#text[this.#at] !== character) return false;
    this.#at++;
    return true;
  }

  #within(limit: keyof JsonLimits, count: number): void {
    const most = this.#limits[limit];
    if (count > most) throw this.#invalid(`has more than ${most} ${limit}`, { limit });
  }

  #invalid(what: string, more: { readonly limit?: keyof JsonLimits } = {}): CompileError {
    return new CompileError('CANONICAL_JSON_INVALID', `the text ${what} (character ${this.#at + 1})`, {
      character: this.#at + 1,
      ...more,
    });
  }
}

const number = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
