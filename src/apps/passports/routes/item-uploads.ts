import { OutsideTransaction } from '../../../engine/outside-transaction.ts';
import { type ItemsInput, parseItems, parsingItems } from '../compile/documents/parse.ts';
import type { DocumentLimits, ParsedItems } from '../compile/types.ts';
import { betweenOthers } from '../rules/between-others.ts';

/** Read at once: a few hundred batteries. */
const smallBytes = 16 * 1024;

/** Reads lists of batteries for requests: long ones outside of their transactions, with requests of others in between. */
export class ItemUploads {
  readonly #read = new WeakMap<Uint8Array, ParsedItems>();
  readonly #limits: DocumentLimits;

  constructor(limits: DocumentLimits) {
    this.#limits = limits;
  }

  /** Throws `OutsideTransaction` until it is read. `bytes` is the body of the request: the same object each time that the route runs. */
  read(input: ItemsInput): ParsedItems {
    if (input.bytes.length <= smallBytes) return parseItems(input, this.#limits);
    const known = this.#read.get(input.bytes);
    if (known) return known;
    throw new OutsideTransaction(async () => {
      this.#read.set(input.bytes, await betweenOthers(parsingItems(input, this.#limits)));
    });
  }
}
