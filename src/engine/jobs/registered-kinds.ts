import { Batcher } from '../batching/batcher.ts';
import type { Queryable } from '../database/database.ts';
import type { LanePolicy, Priority } from './kind.ts';

/** A kind as its workers registered it, whatever program they are. */
export interface RegisteredKind {
  readonly name: string;
  readonly queue: string;
  readonly priority: Priority;
  readonly maxAttempts: number;
  readonly lanePolicy: LanePolicy;
  readonly latestOnly: boolean;
  readonly dedupeKeep: string | null;
  readonly isPublic: boolean;
  /** The whole row as JSON: by it `tallyman.enqueue_prepared` sees that the kind is still the same. */
  readonly row: string;
}

/**
 * The table of kinds, as last read. An entry may be out of date: use it for what is checked again when it is written
 * (`tallyman.enqueue_prepared`), and `read` before a caller is refused.
 */
export class RegisteredKinds {
  readonly #kinds = new Map<string, RegisteredKind>();
  readonly #reads: Batcher<string, RegisteredKind | undefined>;

  constructor(database: Queryable) {
    this.#reads = new Batcher({
      send: async (names) => {
        const found = await this.#look(database, names);
        return names.map((name) => found.get(name));
      },
      maxBatch: 1000,
      maxInFlight: 2,
    });
  }

  /** Undefined: it has not been read. */
  get(name: string): RegisteredKind | undefined {
    return this.#kinds.get(name);
  }

  /** As it is now; undefined: nobody has registered it. Callers that come together share a query. */
  read(name: string): Promise<RegisteredKind | undefined> {
    return this.#reads.add(name);
  }

  async #look(database: Queryable, names: readonly string[]): Promise<Map<string, RegisteredKind>> {
    const { rows } = await database.query<RegisteredKind>(
      `select k.name, k.queue, k.priority, k.max_attempts as "maxAttempts", k.lane_policy as "lanePolicy",
              k.latest_only as "latestOnly", k.dedupe_keep::text as "dedupeKeep", k.is_public as "isPublic",
              to_json(k)::text as row
         from tallyman.kinds k where k.name = any ($1)`,
      [[...new Set(names)]],
    );
    const found = new Map(rows.map((kind) => [kind.name, kind]));
    for (const name of names) {
      const kind = found.get(name);
      if (kind) this.#kinds.set(name, kind);
      else this.#kinds.delete(name);
    }
    return found;
  }
}
