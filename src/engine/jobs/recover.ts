import type { Database, Queryable } from '../database/database.ts';
import { withJitter } from '../resilience/backoff.ts';
import { makeRounds as lookAround, type Rounds } from '../sql/make-rounds.ts';
import { recover as takeBack } from '../sql/recover.ts';
import { registerKinds as register } from '../sql/register-kind.ts';
import { type AnyKind, defaultMaxAttempts } from './kind.ts';

export type { Rounds } from '../sql/make-rounds.ts';

export interface Recovered {
  readonly worker: string;
  readonly freed: number;
  /** The job that lost an attempt, if it is known which one ended the worker. */
  readonly counted: string | undefined;
  /** That was its last attempt. */
  readonly isDead: boolean;
}

/** Recovers the work of workers that are gone or whose lease has expired. Several processes may do this at once. */
export async function recover(
  database: Database,
  gone: readonly string[],
  kinds: Iterable<AnyKind>,
  keepMs: number,
): Promise<Recovered[]> {
  const delays: Record<string, number[]> = {};
  for (const kind of kinds)
    delays[kind.name] = Array.from({ length: kind.maxAttempts ?? 10 }, (_, i) =>
      withJitter(kind.backoff(i + 1)),
    );
  const rows = await takeBack(database, { gone, delays, keepMs });
  return rows.map(({ status, ...row }) => ({ ...row, isDead: status === 'DEAD_LETTER' }));
}

/** The most items that one check promotes. */
const mostPromoted = 1000;

/** Puts due work on its stream, and looks for workers that are gone. */
export function makeRounds(database: Database): Promise<Rounds> {
  // A worker that lost its own connections expects that the others have lost theirs, too.
  return lookAround(database, { limit: mostPromoted, allReturn: database.hadOutage });
}

/** Registers the kinds' defaults, for `tallyman.enqueue()` in SQL. */
export function registerKinds(database: Queryable, kinds: Iterable<AnyKind>): Promise<void> {
  const all = [...kinds].map(
    ({ name, queue, priority, maxAttempts, lanePolicy, latestOnly, dedupeKeep, isPublic }) => ({
      ...{ name, queue, priority, maxAttempts: maxAttempts ?? defaultMaxAttempts },
      ...{ lanePolicy, latestOnly, dedupeKeep, isPublic },
    }),
  );
  return register(database, all);
}
