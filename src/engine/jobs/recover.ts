import type { Database, Queryable } from '../database/database.ts';
import { withJitter } from '../resilience/backoff.ts';
import type { AnyKind } from './kind.ts';

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
  const rows = await database.run(
    {
      name: 'tm_recover',
      text: 'select worker, freed, counted, status from tallyman.recover($1, $2, $3)',
    },
    [gone, JSON.stringify(delays), keepMs],
  );
  return rows.map(([worker, freed, counted, status]) => ({
    worker: worker ?? '',
    freed: Number(freed),
    counted: counted ?? undefined,
    isDead: status === 'DEAD_LETTER',
  }));
}

/** The result of one check; see `tallyman.promote` and `tallyman.absent_workers`. */
export interface Rounds {
  readonly promoted: number;
  readonly nextDueMs: number | undefined;
  readonly gone: readonly string[];
  readonly lookAgainMs: number | undefined;
  /** A lease has expired. */
  readonly hasExpired: boolean;
}

/** Puts due work on its stream, and looks for workers that are gone. */
export async function makeRounds(database: Database): Promise<Rounds> {
  const [row = []] = await database.run(
    {
      name: 'tm_rounds',
      text: `select p.promoted, p.next_due_ms, to_json(a.gone), a.look_again_ms,
                    exists (select 1 from tallyman.claims c
                             where c.expires_at <= clock_timestamp() or c.stale_at <= clock_timestamp())
               from tallyman.promote($1) p, tallyman.absent_workers($2) a`,
    },
    // A worker that lost its own connections expects that the others have lost theirs, too.
    [1000, database.hadOutage],
  );
  const [promoted, nextDueMs, gone, lookAgainMs, expired] = row;
  return {
    promoted: Number(promoted),
    nextDueMs: numberOf(nextDueMs),
    gone: gone ? JSON.parse(gone) : [],
    lookAgainMs: numberOf(lookAgainMs),
    hasExpired: expired === 't',
  };
}

const numberOf = (cell: string | null | undefined): number | undefined =>
  cell === null || cell === undefined ? undefined : Number(cell);

/** Registers the kinds' defaults, for `tallyman.enqueue()` in SQL. */
export async function registerKinds(database: Queryable, kinds: Iterable<AnyKind>): Promise<void> {
  const all = [...kinds];
  await database.query(
    `select tallyman.register_kind(k.name, k.queue, k.priority, k.max_attempts, k.policy, k.latest, k.keep, k.is_public)
       from unnest($1::text[], $2::text[], $3::integer[], $4::integer[], $5::text[], $6::boolean[], $7::interval[],
                   $8::boolean[])
         as k (name, queue, priority, max_attempts, policy, latest, keep, is_public)`,
    [
      all.map((kind) => kind.name),
      all.map((kind) => kind.queue),
      all.map((kind) => kind.priority),
      all.map((kind) => kind.maxAttempts ?? 5),
      all.map((kind) => kind.lanePolicy),
      all.map((kind) => kind.latestOnly),
      all.map((kind) => kind.dedupeKeep),
      all.map((kind) => kind.isPublic),
    ],
  );
}
