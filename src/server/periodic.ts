import { messageOf } from '../engine/errors.ts';
import type { Logger } from '../engine/logger.ts';
import { endsWithin, pause } from '../engine/resilience/deadline.ts';

const goodbyeMs = 2_000;

export interface Periodic {
  /** Resolves when what is under way has ended, or soon: a silent database must not keep a server from stopping. */
  stop(): Promise<void>;
}

/** What a server does from time to time, one after another. `trouble` is logged once, until it works again. */
export function periodically(
  {
    everyMs,
    trouble,
    logger,
  }: { readonly everyMs: number; readonly trouble: string; readonly logger: Logger },
  work: (signal: AbortSignal) => Promise<unknown>,
): Periodic {
  const controller = new AbortController();
  const { signal } = controller;
  let isFailing = false;
  const run = async (): Promise<void> => {
    for (await pause(everyMs, signal); !signal.aborted; await pause(everyMs, signal)) {
      try {
        await work(signal);
        isFailing = false;
      } catch (error) {
        if (!signal.aborted && !isFailing) logger.warn({ error: messageOf(error) }, trouble);
        isFailing = true;
      }
    }
  };
  const ended = run();
  return {
    stop: async () => {
      controller.abort();
      await endsWithin(ended, goodbyeMs);
    },
  };
}
