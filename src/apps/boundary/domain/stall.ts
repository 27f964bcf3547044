/** "Connected, but the frontier does not move" (BND-10), decided from what is seen of a stream from time to time. */

export interface Seen {
  /** The highest offset that has crossed. */
  readonly frontier: number;
  /** Facts that have not. */
  readonly waiting: number;
  /** The other zone answers. While it does not, facts gather, and nothing is wrong here. */
  readonly isConnected: boolean;
}

/** A frontier that did not move, since a time in milliseconds. */
export interface Standing {
  readonly frontier: number;
  readonly since: number;
}

/** Undefined: nothing waits, or nobody could take it. */
export function standingAfter(before: Standing | undefined, seen: Seen, now: number): Standing | undefined {
  if (!seen.isConnected || seen.waiting <= 0) return undefined;
  return before?.frontier === seen.frontier ? before : { frontier: seen.frontier, since: now };
}

export const isStalled = (standing: Standing | undefined, now: number, afterMs: number): boolean =>
  standing !== undefined && now - standing.since >= afterMs;
