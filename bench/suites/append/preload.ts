import { LogStreams } from '../../../src/apps/boundary/store/postgres/log-streams.ts';
import type { Database, Queryable } from '../../../src/engine/database/database.ts';
import { Log } from '../../../src/engine/log/log.ts';
import { FROM, TO } from './facts.ts';

/** Entries that came through a call, without the one that `preload` leaves. */
export async function countEntries(on: Queryable): Promise<number> {
  const { rows } = await on.query<{ count: number }>(
    `select count(*)::int as count from tallyman.log_entries where length(key) = 64`,
  );
  return rows[0]?.count ?? 0;
}

/**
 * A stream as it is after so many facts were appended and trimmed. Their keys are written straight into the table that trimming
 * copies them to: appending ten million facts would take longer than the rest of the bench.
 */
export async function preload(database: Database, trimmed: number): Promise<void> {
  if (trimmed === 0) return;
  const stream = new LogStreams().of({ tenantId: 'default', buffer: 'store', from: FROM, to: TO });
  const log = new Log(database);
  await log.append(stream, { key: 'the first', payload: null });
  const { rows } = await database.query<{ id: number }>('select id from tallyman.log_streams');
  const id = rows[0]?.id;
  await database.query(
    `insert into tallyman.log_keys ("offset", key_hash, digest, stream)
     select n, md5('key ' || n)::uuid, md5('digest ' || n)::uuid, $2 from generate_series(2, $1::int) n`,
    [trimmed, id],
  );
  await database.query(
    'update tallyman.log_streams set next_offset = $1::bigint + 1, first_offset = $1::bigint + 1 where id = $2',
    [trimmed, id],
  );
  await database.query('vacuum analyze tallyman.log_keys');
  await database.query('checkpoint');
  await log.stop();
}
