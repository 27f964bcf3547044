import type { Hint } from '../wakeups/wakeup.ts';
import type { Queryable } from './database.ts';

/** Something that takes hints itself: the database sends them at once, a scope adds them to its transaction. */
export interface Waker {
  wakeAfterCommit(hints: readonly Hint[]): void;
}

/** Transactions that are open, by their client, with what they have enqueued so far. */
const open = new WeakMap<object, Hint[]>();

/**
 * Notes that `on` has enqueued. The hints go out when its transaction has committed, and are forgotten if it does not. In a
 * transaction that is not ours nobody knows when that is: there the NOTIFY that SQL sends must do.
 */
export function wakeAfterCommit(on: Queryable, hints: readonly Hint[]): void {
  if (isWaker(on)) on.wakeAfterCommit(hints);
  else open.get(on)?.push(...hints);
}

const isWaker = (on: Queryable | Waker): on is Waker => 'wakeAfterCommit' in on;

/** Collects the hints of the transaction that begins on `client`. */
export function collectHints(client: object): readonly Hint[] {
  const hints: Hint[] = [];
  open.set(client, hints);
  return hints;
}

/** The transaction on `client` has ended. */
export const endHints = (client: object): boolean => open.delete(client);
