import type { LinkStatus } from '../resilience/link.ts';

/**
 * A wake-up is a hint that a queue may have work. It is never trusted and never needed:
 * every worker also polls. An adapter may lose, repeat or delay hints; it must not throw
 * them at its caller, nor stop the process when its broker is away.
 */
export interface Wakeup {
  readonly name: string;
  /** Starts listening. Resolves once the first attempt to connect has ended, well or badly. */
  start(onHint: (hint: Hint) => void): Promise<void>;
  /** Tells the others. Resolves when handed over; a broker that is away costs nothing but the hint. */
  publish(hint: Hint): Promise<void>;
  status(): WakeupStatus;
  stop(): Promise<void>;
}

/** `queue` null: unknown, look everywhere. */
export interface Hint {
  readonly queue: string | null;
  readonly jobId?: string;
}

export type WakeupStatus = LinkStatus;
