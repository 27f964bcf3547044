import { createHash } from 'node:crypto';

/** Draws that follow from a text alone: the same text, the same draws, on every machine and in any order of calls. */
export class Chance {
  readonly #words: Buffer;
  #at = 0;

  constructor(text: string) {
    this.#words = createHash('sha512').update(text).digest();
  }

  /** From 0 up to, not including, 1; the same sixteen over and over. */
  next(): number {
    const word = this.#words.readUInt32LE(this.#at);
    this.#at = (this.#at + 4) % this.#words.length;
    return word / 2 ** 32;
  }

  chance(share: number): boolean {
    return this.next() < share;
  }
}
