import { messageOf } from '../../../engine/errors.ts';
import { pause } from '../../../engine/resilience/deadline.ts';
import { type AskOptions, askGateways } from './ask.ts';

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
    let trouble: string | undefined;
    while (!stopped.aborted) {
      try {
        await askGateways(this.#options, stopped);
        trouble = undefined;
      } catch (error) {
        if (stopped.aborted) return;
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
  }
}
