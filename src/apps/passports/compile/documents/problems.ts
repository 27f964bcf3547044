import type { DocumentProblem, DocumentProblemCode } from '../types.ts';

/** A problem quotes the document, whose names and values can be as long as the file. */
const longestQuote = 200;
const longestMessage = 4000;

/** Collects what is wrong with a document, up to a limit: the thousandth problem helps nobody. */
export class Problems {
  readonly #all: DocumentProblem[] = [];
  readonly #most: number;

  constructor(most: number) {
    this.#most = most;
  }

  add(code: DocumentProblemCode, row: number | null, column: string | null, message: string): void {
    if (this.full) return;
    this.#all.push({
      code,
      row,
      column: column === null ? null : clipped(column, longestQuote),
      message: clipped(message, longestMessage),
    });
  }

  get none(): boolean {
    return this.#all.length === 0;
  }

  get full(): boolean {
    return this.#all.length >= this.#most;
  }

  get all(): readonly DocumentProblem[] {
    return this.#all;
  }
}

/** Not between the two halves of a character: PostgreSQL takes no half. */
const clipped = (text: string, most: number): string =>
  text.length <= most ? text : `${text.slice(0, most).toWellFormed()} …`;
