import type { Database } from '../database/database.ts';
import { type ArgumentsOf, idsOf, SqlFunction } from './sql-function.ts';

export const enqueueClaimedFunction = new SqlFunction('enqueue_claimed', {
  queue: 'text',
  priority: 'smallint',
  kind: 'text',
  maxAttempts: 'smallint',
  tenant: 'text',
  correlation: 'text',
  trace: 'text',
  payloads: 'json',
  worker: 'text',
  leaseMs: 'integer',
  staleMs: 'integer',
});

export interface EnqueuedAndClaimed {
  readonly token: string;
  readonly stream: number;
  /** Seconds since 1970. */
  readonly createdAt: number;
  readonly ids: readonly string[];
}

/** Undefined: another has the turn, or other work comes first; nothing was written. */
export async function enqueueClaimed(
  database: Pick<Database, 'run'>,
  args: ArgumentsOf<typeof enqueueClaimedFunction>,
): Promise<EnqueuedAndClaimed | undefined> {
  const [row] = await enqueueClaimedFunction.run(database, args);
  const [token, stream, createdUs, ...ids] = idsOf(row?.[0]);
  if (token === undefined) return undefined;
  return { token, stream: Number(stream), createdAt: Number(createdUs) / 1e6, ids };
}
