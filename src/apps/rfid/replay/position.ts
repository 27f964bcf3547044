/**
 * How far a source was read, and which rows may still appear below that.
 *
 * An id is drawn before its row commits, so a row may become visible below one that was read long ago. Only transactions
 * that were writing when the newest row was seen can do that: the horizon names these writers. Reading goes on at the
 * cursor at once. When all writers of a horizon have ended, the rows between the floor and the horizon are read again,
 * and the floor moves up. Below the floor no row can appear any more.
 *
 *     ──────────── floor ─────────── awaits.id ────────── cursor ──────── newest
 *       complete     may have gaps, read again     read once       not read
 */

/** The newest row, and who may still commit below it. */
export interface Horizon {
  readonly id: string;
  readonly writers: readonly string[];
  /** Transactions below this one may be writers; null: `writers` is complete. */
  readonly xmax: string | null;
  /** By the source's clock, in milliseconds since 1970. */
  readonly at: number;
}

export interface Position {
  readonly floor: string;
  readonly cursor: string;
  readonly awaits: Horizon | null;
}

/** Ids after `after`, up to and including `upTo`. */
export interface Pass {
  readonly after: string;
  readonly upTo: string;
  /** The position when everything up to `id` is done. */
  readonly position: (id: string) => Position;
}

export const startingAt = (id: string): Position => ({ floor: id, cursor: id, awaits: null });

/** The rows that were missing when it was read, now that the writers of its horizon have ended. */
export function latePass(position: Position, horizon: Horizon): Pass | undefined {
  const { awaits, floor, cursor } = position;
  if (!awaits) return undefined;
  return {
    after: floor,
    upTo: awaits.id,
    position: (id) => {
      if (id !== awaits.id) return { ...position, floor: id };
      // The rows read above it meanwhile have their own gaps to wait for.
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

/** Nothing to read, and no writer to wait for. */
export const isIdle = (position: Position, horizon: Horizon): boolean =>
  position.awaits === null && !isAfter(horizon.id, position.cursor);

export const isAfter = (a: string, b: string): boolean => BigInt(a) > BigInt(b);
export const later = (a: string, b: string): string => (isAfter(a, b) ? a : b);
export const earlier = (a: string, b: string): string => (isAfter(a, b) ? b : a);
