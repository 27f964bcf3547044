import type { Hash } from '../compile/types.ts';

export interface BrokenLink {
  /** `version:<id>#3` for an event, `head 17`, `version:<id> (number)` for a column of a row. */
  readonly at: string;
  readonly message: string;
}

/** Names a head. Keep the last one elsewhere: with it the next audit finds that everything after it was taken back. */
export interface KnownHead {
  readonly number: number;
  readonly hash: Hash;
}

export interface AuditReport {
  readonly events: number;
  readonly heads: number;
  /** Events that no head covers yet: a cut tail among them shows only by the rows that they tell of. */
  readonly uncovered: number;
  /** The last head. */
  readonly head: KnownHead | null;
  /** The first broken link; null if there is none. */
  readonly broken: BrokenLink | null;
}
