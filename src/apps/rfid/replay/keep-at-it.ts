import { messageOf } from '../../../engine/errors.ts';
import type { Logger } from '../../../engine/logger.ts';
import { pause } from '../../../engine/resilience/deadline.ts';

export interface KeepAtItOptions {
  readonly signal: AbortSignal;
  readonly intervalMs: number;
  readonly logger: Logger;
  /** For the log: the name of the work. */
  readonly what: string;
}

/** Runs `work` again and again until the signal fires. Logs an error and tries again. */
export async function keepAtIt(options: KeepAtItOptions, work: () => Promise<void>): Promise<void> {
  const { signal, intervalMs, logger, what } = options;
  while (!signal.aborted) {
    try {
      await work();
    } catch (error) {
      if (!signal.aborted)
        logger.warn({ error: messageOf(error) }, `${what} failed; it will continue where it stopped`);
    }
    await pause(intervalMs, signal);
  }
}
