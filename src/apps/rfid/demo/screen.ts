import { print } from '../../../host/cli/output/print.ts';
import { terminalWidth } from '../../../host/cli/output/terminal.ts';
import type { Balance } from './books.ts';
import { statusLine } from './lines.ts';

const plainLineMs = 2000;

/** One line that is rewritten on a terminal, else a line now and then. */
export class Screen {
  readonly #inPlace: boolean;
  readonly #kills: () => number | undefined;
  /** Counts of the last seconds, with their times: the rate is the average over them. */
  readonly #past = [{ at: performance.now(), counted: 0 }];
  #printedAt = 0;
  #open = false;

  constructor(inPlace: boolean, kills: () => number | undefined) {
    this.#inPlace = inPlace;
    this.#kills = kills;
  }

  show(balance: Balance): void {
    const now = performance.now();
    this.#past.push({ at: now, counted: balance.counted });
    while (this.#past.length > 6) this.#past.shift();
    const first = this.#past[0];
    const perSecond = first ? (1000 * (balance.counted - first.counted)) / (now - first.at) : 0;
    if (this.#inPlace) {
      process.stdout.write(`\r${statusLine(balance, perSecond, this.#kills(), terminalWidth() - 1)}\x1b[K`);
      this.#open = true;
    } else if (now - this.#printedAt >= plainLineMs * 0.9) {
      this.#printedAt = now;
      print(statusLine(balance, perSecond, this.#kills()));
    }
  }

  end(text: string | undefined): void {
    if (this.#open) process.stdout.write('\n');
    this.#open = false;
    if (text !== undefined) print(text);
  }
}
