/**
 * How far a source was read, and what may still appear behind.
 *
 * Ids are drawn before their rows commit, so a row may become visible below one that was read long ago. Whoever could do
 * that was writing when the newest row was seen: the horizon names these writers. Reading goes on at the cursor at once;
 * when all writers of a horizon have ended, what lies between the floor and the horizon is read once more, and the floor
 * follows. Below the floor nothing can appear any more.
 *
 *     ──────────── floor ─────────── awaits.id ────────── cursor ──────── newest
 *       complete     may have gaps, read again     read once       not read
 */

/** The newest row, and who may still commit below it. */
export interface Horizon {
  readonly id: string;
  readonly writers: readonly string[];
  /** Transactions below this one may be writers; null: `writers` is the whole truth. */
  readonly xmax: string | null;
  /** By the source's clock, in milliseconds since 1970. */
  readonly at: number;
}

export interface Position {
  readonly floor: string;
  readonly cursor: string;
  readonly awaits: Horizon | null;
}

/** Ids after `after`, up to and with `upTo`. */
export interface Pass {
  readonly after: string;
  readonly upTo: string;
  /** The position when everything up to `id` is done. */
  readonly position: (id: string) => Position;
}

export const startingAt = (id: string): Position => ({ floor: id, cursor: id, awaits: null });

/** What was missing when it was read, now that the writers of its horizon have ended. */
export function latePass(position: Position, horizon: Horizon): Pass | undefined {
  const { awaits, floor, cursor } = position;
  if (!awaits) return undefined;
  return {
    after: floor,
    upTo: awaits.id,
    position: (id) => {
      if (id !== awaits.id) return { ...position, floor: id };
      // What was read above it meanwhile has gaps of its own to wait for.
      return isAfter(cursor, id)
        ? { floor: id, cursor, awaits: { ...horizon, id: later(horizon.id, cursor) } }
        : startingAt(id);
    },
  };
}

/** What is new. `settled`: the horizon has no writers, what is read is complete. */
export function newPass(position: Position, horizon: Horizon, settled: boolean): Pass | undefined {
  const { floor, cursor, awaits } = position;
  if (!isAfter(horizon.id, cursor)) return undefined;
  const complete = settled && floor === cursor;
  return {
    after: cursor,
    upTo: horizon.id,
    position: (id) => (complete ? startingAt(id) : { floor, cursor: id, awaits: awaits ?? horizon }),
  };
}

/** Nothing to read, and nobody to wait for. */
export const isIdle = (position: Position, horizon: Horizon): boolean =>
  position.awaits === null && !isAfter(horizon.id, position.cursor);

export const isAfter = (a: string, b: string): boolean => BigInt(a) > BigInt(b);
export const later = (a: string, b: string): string => (isAfter(a, b) ? a : b);
export const earlier = (a: string, b: string): string => (isAfter(a, b) ? b : a);
