import { messageOf } from '../../../engine/errors.ts';
import { pause } from '../../../engine/resilience/deadline.ts';
import { type AskOptions, askGateways } from './ask.ts';

export interface StatusLoopOptions extends AskOptions {
  /** How often it looks for pages that are due. Default 2000. */
  readonly intervalMs?: number;
}

/**
 * Asks gateways about labels, over and over. Every process that brings images to labels has one; they share the work, and
 * what one leaves behind by dying is due again a minute later. It is no job: one every two seconds, for ever, would bury
 * the others in the lists that people read.
 */
export class StatusLoop {
  readonly #options: StatusLoopOptions;
  readonly #stopping = new AbortController();
  #running: Promise<void> = Promise.resolve();

  constructor(options: StatusLoopOptions) {
    this.#options = options;
  }

  /** Goes on until stop(); trouble is logged and tried again, never thrown. */
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
        // Once for as long as it stays the same.
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
