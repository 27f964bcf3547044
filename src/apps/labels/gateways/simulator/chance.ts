import { createHash } from 'node:crypto';

/** Random numbers that depend on a text only: the same text gives the same numbers, on every machine. */
export class Chance {
  readonly #words: Buffer;
  #at = 0;

  constructor(text: string) {
    this.#words = createHash('sha512').update(text).digest();
  }

  /** From 0 to 1, without 1. After sixteen numbers they repeat. */
  next(): number {
    const word = this.#words.readUInt32LE(this.#at);
    this.#at = (this.#at + 4) % this.#words.length;
    return word / 2 ** 32;
  }

  chance(share: number): boolean {
    return this.next() < share;
  }
}
