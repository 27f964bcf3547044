import { createInterface } from 'node:readline/promises';
import { styleText } from 'node:util';

/** Piped output is not cut: a script or `less -S` needs all of it. Nor is output on a terminal of unknown size (0). */
export function terminalWidth(): number {
  const asked = Number(process.env.COLUMNS);
  return asked > 0 ? asked : process.stdout.columns || Infinity;
}

/** Asks on stderr, so that stdout stays clean. */
export async function confirm(question: string): Promise<boolean> {
  const terminal = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return /^y(es)?$/i.test((await terminal.question(`${question} [y/N] `)).trim());
  } catch {
    // Ctrl-C or Ctrl-D at the question.
    process.stderr.write('\n');
    return false;
  } finally {
    terminal.close();
  }
}

/** Shows the progress of a long operation: in place on a terminal, else as a line now and then. */
export class Progress {
  readonly #label: string;
  #lastAt = performance.now();
  #shown = false;

  constructor(label: string) {
    this.#label = label;
  }

  /** With a total, as a bar. */
  show(done: number, total?: number): void {
    const now = performance.now();
    const terminal = process.stderr.isTTY === true;
    if (now - this.#lastAt < (terminal ? 100 : 5000)) return;
    this.#lastAt = now;
    const text = `${this.#label} ${total ? bar(done, total) : `${done.toLocaleString('en')} …`}`;
    process.stderr.write(terminal ? `\r${text}\x1b[K` : `${text}\n`);
    this.#shown = terminal;
  }

  end(): void {
    if (this.#shown) process.stderr.write('\r\x1b[K');
  }
}

function bar(done: number, total: number): string {
  const share = Math.min(1, done / total);
  const filled = Math.round(share * 20);
  const figures = `${done.toLocaleString('en')} of ${total.toLocaleString('en')}`;
  return `${'█'.repeat(filled)}${'░'.repeat(20 - filled)} ${Math.floor(share * 100)} %, ${figures}`;
}

const colours: Readonly<Record<string, 'green' | 'red' | 'yellow' | 'cyan' | 'dim'>> = {
  RUNNING: 'cyan',
  SUCCEEDED: 'green',
  FAILED: 'red',
  DEAD_LETTER: 'red',
  CANCELLED: 'dim',
  SUPERSEDED: 'dim',
  held: 'cyan',
  blocked: 'red',
  waiting: 'yellow',
  resting: 'dim',
  paused: 'yellow',
  ok: 'green',
  warn: 'yellow',
  fail: 'red',
};

/** Colour on a terminal that wants it (NO_COLOR is honoured), plain elsewhere. */
export function paintState(text: string, state: string): string {
  const colour = colours[state];
  return colour ? styleText(colour, text, { stream: process.stdout }) : text;
}
