/** Rendered answers by their ETag: a page that goes around the world is rendered once. Bounded by bytes. */
export class AnswerCache {
  readonly #maxBytes: number;
  readonly #answers = new Map<string, string | Uint8Array>();
  #bytes = 0;

  constructor(maxBytes = 32 * 1024 * 1024) {
    this.#maxBytes = maxBytes;
  }

  get(tag: string): string | Uint8Array | undefined {
    const found = this.#answers.get(tag);
    if (found === undefined) return undefined;
    // Last used last: the first is the one to forget.
    this.#answers.delete(tag);
    this.#answers.set(tag, found);
    return found;
  }

  put(tag: string, answer: string | Uint8Array): void {
    if (answer.length > this.#maxBytes / 4 || this.#answers.has(tag)) return;
    this.#answers.set(tag, answer);
    this.#bytes += answer.length;
    for (const [oldest, { length }] of this.#answers) {
      if (this.#bytes <= this.#maxBytes) return;
      this.#answers.delete(oldest);
      this.#bytes -= length;
    }
  }
}
