import { TallymanError } from '../../../engine/errors.ts';
import { deadline } from '../../../engine/resilience/deadline.ts';

/** What one report may take: a tenant chooses the gateway, and that may answer slowly, at length, or without end. */
export interface ReportLimits {
  /** For all calls of a report together. */
  readonly timeMs: number;
  /** Rows of all pages, wanted or not. */
  readonly rows: number;
  readonly bytes: number;
  readonly pages: number;
}

/** Far above any real store: 200,000 labels, with 300 bytes each. */
const usual: ReportLimits = { timeMs: 5 * 60_000, rows: 200_000, bytes: 64 * 1024 * 1024, pages: 1000 };

/** Counts what a report has taken. */
export class ReportBudget {
  readonly #gateway: string;
  readonly #limits: ReportLimits;
  #rows = 0;
  #bytes = 0;
  #pages = 0;

  constructor(gateway: string, limits: Partial<ReportLimits> = {}) {
    this.#gateway = gateway;
    this.#limits = { ...usual, ...limits };
  }

  /** Runs a report with its time limit. */
  async run<T>(signal: AbortSignal, report: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const { timeMs } = this.#limits;
    const limit = deadline(
      timeMs,
      signal,
      () =>
        new TallymanError(
          'GATEWAY_TIMEOUT',
          `${this.#gateway} did not report on its labels within ${timeMs} ms`,
        ),
    );
    try {
      return await report(limit.signal);
    } finally {
      limit.clear();
    }
  }

  /** Throws for a report that is too long. Labels that it has not named by then must not be taken for unknown ones. */
  take(page: { readonly rows: number; readonly bytes: number }): void {
    this.#rows += page.rows;
    this.#bytes += page.bytes;
    this.#pages += 1;
    for (const [count, most, what] of [
      [this.#rows, this.#limits.rows, 'labels'],
      [this.#bytes, this.#limits.bytes, 'bytes'],
      [this.#pages, this.#limits.pages, 'pages'],
    ] as const)
      if (count > most)
        throw new TallymanError('GATEWAY_ANSWER', `${this.#gateway} lists more than ${most} ${what}`);
  }
}
