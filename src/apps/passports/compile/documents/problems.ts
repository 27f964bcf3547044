import type { DocumentProblem, DocumentProblemCode } from '../types.ts';

/** Collects what is wrong with a document, up to a limit: the thousandth problem helps nobody. */
export class Problems {
  readonly #all: DocumentProblem[] = [];
  readonly #most: number;

  constructor(most: number) {
    this.#most = most;
  }

  add(code: DocumentProblemCode, row: number | null, column: string | null, message: string): void {
    if (!this.full) this.#all.push({ code, row, column, message });
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
