import { messageOf } from '../../../engine/errors.ts';
import { pause } from '../../../engine/resilience/deadline.ts';
import { Asking, type AskOptions, batchSize } from './ask.ts';

export interface StatusLoopOptions extends AskOptions {
  /** How often it looks for pages that are due. Default 2000. */
  readonly intervalMs?: number;
}

/**
 * Asks gateways about labels, again and again. Every process that pushes images runs one; they share the work, and the pages
 * of a crashed process are due again a minute later. It is not a job: one job every two seconds would fill the lists that
 * people read.
 */
export class StatusLoop {
  readonly #options: StatusLoopOptions;
  readonly #stopping = new AbortController();
  #running: Promise<void> = Promise.resolve();

  constructor(options: StatusLoopOptions) {
    this.#options = options;
  }

  /** Runs until stop(); logs errors and tries again, never throws. */
  start(): void {
    this.#running = this.#run(this.#stopping.signal);
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#running;
  }

  async #run(stopped: AbortSignal): Promise<void> {
    const { database, intervalMs = 2000 } = this.#options;
    const asking = new Asking(this.#options);
    let trouble: string | undefined;
    while (!stopped.aborted) {
      try {
        let taken: number;
        // Not until it has ended: a gateway may take minutes, and other stores have pages that are due.
        do taken = await asking.begin(stopped);
        while (taken === batchSize && !stopped.aborted);
        trouble = undefined;
      } catch (error) {
        if (stopped.aborted) break;
        // Log an error once for as long as it stays the same.
        if (trouble !== messageOf(error))
          database.logger.warn(
            { error: messageOf(error) },
            'asking what labels show was interrupted; trying again',
          );
        trouble = messageOf(error);
      }
      await pause(intervalMs, stopped);
    }
    // What is under way ends with the signal.
    await asking.ended().catch(() => {});
  }
}
