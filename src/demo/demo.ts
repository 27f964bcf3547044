import { setTimeout as sleep } from 'node:timers/promises';
import { print } from '../cli/output/print.ts';
import { terminalWidth } from '../cli/output/terminal.ts';
import { loadConfig } from '../config/load.ts';
import { messageOf } from '../engine/errors.ts';
import { createLogger } from '../runtime/logger.ts';
import { openRuntime, type Runtime, workerOptions } from '../runtime/open.ts';
import { onStopSignal } from '../runtime/signals.ts';
import { audit, type Balance, balances, setUpBooks } from './books.ts';
import { takeIn } from './intake.ts';
import { statusLine, summary, welcome } from './lines.ts';
import { bookTruck, printLabel, scanPallet } from './plant.ts';
import { Random } from './random.ts';

export interface DemoOptions {
  readonly headless?: boolean;
  readonly for?: number;
  readonly rate: number;
  readonly seed?: number;
}

/** What a killed demo held is free again after this, so that nobody has to wait a minute to see it recover. */
const lease = { leaseMs: 5000, renewMs: 1500, recoverIntervalMs: 2000 };
const auditMs = 1000;
const plainLineMs = 2000;
/** With --for, what waits for a retry is given this long to come to its end. */
const drainMs = 20_000;
const stopTimeoutMs = 4000;

export async function runDemo(options: DemoOptions): Promise<{ summary: string; balanced: boolean }> {
  const began = performance.now();
  const inPlace = process.stdout.isTTY === true && !options.headless;
  const logger = createLogger({
    level: 'warn',
    ...(inPlace && { before: () => process.stdout.write('\r\x1b[K') }),
  });
  const config = loadConfig();
  const stopping = new AbortController();
  let why = 'its time is over';
  onStopSignal((signal) => {
    why = `${signal === 'SIGINT' ? 'Ctrl-C' : signal}; once more ends it at once`;
    stopping.abort();
  });
  const runtime = await openRuntime(config, {
    logger,
    migrate: true,
    applicationName: 'tallyman demo',
    embedded: 'own',
  });
  try {
    const { tallyman } = runtime;
    await setUpBooks(tallyman.database);
    let balance = await audit(tallyman.database);
    print(welcome(runtime.describe(), balance));
    const booking = bookTruck(tallyman.database);
    const worker = tallyman.worker({
      ...workerOptions(config),
      ...lease,
      stopTimeoutMs,
      concurrency: Math.max(32, config['jobs.concurrency']),
      kinds: [scanPallet, printLabel, booking],
    });
    await worker.start();
    const timer = options.for === undefined ? undefined : setTimeout(() => stopping.abort(), options.for);
    const screen = new Screen(inPlace, () => worker.held, balance.done);
    const watching = watch(runtime, stopping.signal, (latest) => {
      balance = latest;
      screen.show(latest);
    });
    await takeIn({
      tallyman,
      booking,
      random: new Random(options.seed ?? Date.now()),
      ratePerSecond: options.rate,
      waiting: () => balance.queued,
      signal: stopping.signal,
    });
    clearTimeout(timer);
    await watching;
    const signalled = why !== 'its time is over';
    if (!signalled) await drained(runtime, (latest) => screen.show(latest));
    screen.end(signalled ? `stopping (${why})` : undefined);
    await worker.stop();
    balance = await audit(tallyman.database);
    return {
      summary: summary(balance, performance.now() - began, why.replace(/;.*/, '')),
      balanced: balances(balance),
    };
  } finally {
    await runtime.close();
  }
}

/** Audits every second until the signal fires. */
async function watch(runtime: Runtime, signal: AbortSignal, tell: (balance: Balance) => void): Promise<void> {
  while (!signal.aborted) {
    await sleep(auditMs, undefined, { signal }).catch(() => {});
    try {
      if (!signal.aborted) tell(await audit(runtime.tallyman.database));
    } catch (error) {
      runtime.tallyman.database.logger.warn(
        { reason: messageOf(error) },
        'the books could not be read; trying again',
      );
    }
  }
}

async function drained(runtime: Runtime, tell: (balance: Balance) => void): Promise<void> {
  for (const deadline = performance.now() + drainMs; performance.now() < deadline; await sleep(200)) {
    const balance = await audit(runtime.tallyman.database);
    tell(balance);
    if (balance.queued + balance.retrying === 0) return;
  }
}

/** One line that is rewritten on a terminal, else a line now and then. */
class Screen {
  readonly #inPlace: boolean;
  readonly #held: () => number;
  /** What was done when, of the last seconds: the rate is taken over all of them. */
  readonly #past: { at: number; done: number }[] = [];
  #printedAt = 0;
  #open = false;

  constructor(inPlace: boolean, held: () => number, doneBefore: number) {
    this.#inPlace = inPlace;
    this.#held = held;
    this.#past.push({ at: performance.now(), done: doneBefore });
  }

  show(balance: Balance): void {
    const now = performance.now();
    this.#past.push({ at: now, done: balance.done });
    while (this.#past.length > 6) this.#past.shift();
    const first = this.#past[0];
    const seconds = first ? (now - first.at) / 1000 : 0;
    const perSecond = first && seconds > 0 ? (balance.done - first.done) / seconds : 0;
    if (this.#inPlace) {
      process.stdout.write(`\r${statusLine(balance, this.#held(), perSecond, terminalWidth() - 1)}\x1b[K`);
      this.#open = true;
    } else if (now - this.#printedAt >= plainLineMs - auditMs / 4) {
      this.#printedAt = now;
      print(statusLine(balance, this.#held(), perSecond));
    }
  }

  end(text: string | undefined): void {
    if (this.#open) process.stdout.write('\n');
    if (text !== undefined) print(text);
  }
}
