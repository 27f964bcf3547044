import type { ClaimedItem } from './claim.ts';

/** Items that are claimed and wait for a slot, in the order in which they start. An array with a head: to shift it would move all. */
export class ReadyItems {
  #items: ClaimedItem[] = [];
  #head = 0;

  get isEmpty(): boolean {
    return this.#head === this.#items.length;
  }

  put(item: ClaimedItem): void {
    this.#items.push(item);
  }

  putFirst(item: ClaimedItem): void {
    if (this.#head > 0) {
      this.#head -= 1;
      this.#items[this.#head] = item;
    } else {
      this.#items.unshift(item);
    }
  }

  take(): ClaimedItem | undefined {
    const item = this.#items[this.#head];
    if (item === undefined) return undefined;
    this.#head += 1;
    if (this.isEmpty) this.#clear();
    return item;
  }

  takeAll(): ClaimedItem[] {
    const items = this.#items.slice(this.#head);
    this.#clear();
    return items;
  }

  #clear(): void {
    this.#items = [];
    this.#head = 0;
  }
}
