import type { Database, Queryable } from '../database/database.ts';
import { withJitter } from './failures.ts';
import type { AnyKind } from './kind.ts';

export interface Recovered {
  readonly worker: string;
  readonly freed: number;
  /** The job that lost an attempt, if it is known which one ended the worker. */
  readonly counted: string | undefined;
}

/** Takes back what workers held whose lease is past. Many may do this at once; each claim is taken by one. */
export async function recover(
  database: Database,
  kinds: Iterable<AnyKind>,
  keepMs: number,
): Promise<Recovered[]> {
  const delays: Record<string, number[]> = {};
  for (const kind of kinds)
    delays[kind.name] = Array.from({ length: kind.maxAttempts ?? 10 }, (_, i) =>
      withJitter(kind.backoff(i + 1)),
    );
  const rows = await database.run(
    { name: 'tm_recover', text: 'select worker, freed, counted from tallyman.recover($1, $2)' },
    [JSON.stringify(delays), keepMs],
  );
  return rows.map(([worker, freed, counted]) => ({
    worker: worker ?? '',
    freed: Number(freed),
    counted: counted ?? undefined,
  }));
}

/** Writes the kinds' defaults down, for `tallyman.enqueue()` in SQL. */
export async function registerKinds(database: Queryable, kinds: Iterable<AnyKind>): Promise<void> {
  const all = [...kinds];
  await database.query(
    `select tallyman.register_kind(k.name, k.queue, k.priority, k.max_attempts, k.policy, k.latest, k.keep)
       from unnest($1::text[], $2::text[], $3::integer[], $4::integer[], $5::text[], $6::boolean[], $7::interval[])
         as k (name, queue, priority, max_attempts, policy, latest, keep)`,
    [
      all.map((kind) => kind.name),
      all.map((kind) => kind.queue),
      all.map((kind) => kind.priority),
      all.map((kind) => kind.maxAttempts ?? 5),
      all.map((kind) => kind.lanePolicy),
      all.map((kind) => kind.latestOnly),
      all.map((kind) => kind.dedupeKeep),
    ],
  );
}
