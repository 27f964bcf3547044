/** Trimming and deleting, in batches that no appender waits for; functions/log.sql says how and why. */
import type { Database } from '../database/database.ts';
import { logAdvance } from '../sql/log-advance.ts';
import { logCopyKeys } from '../sql/log-copy-keys.ts';
import { logDrop } from '../sql/log-drop.ts';
import { streamId } from './read.ts';
import type { ResolvedStream } from './stream.ts';

/** Entries in each transaction. */
const batch = 5000;
/** Pages of log_keys that one statement looks through for keys of a stream that is deleted. */
const pagesAtOnce = 5000;

export async function trim(database: Database, stream: ResolvedStream, upTo: number): Promise<number> {
  const id = await streamId(database, stream);
  if (id === undefined) return 0;
  let trimmed = 0;
  for (;;) {
    const from = await firstOffset(database, id);
    // The stream was deleted meanwhile.
    if (from === undefined) return trimmed;
    const { ended, bytes } = await logCopyKeys(database, { stream: id, from, upTo, limit: batch });
    if (!(ended > from)) break;
    if (await logAdvance(database, { stream: id, from, ended, bytes })) trimmed += ended - from;
    await dropAll(database, id);
  }
  await dropAll(database, id);
  return trimmed;
}

/** Marks the stream, so that nobody appends to it, then deletes what it has. Going on after a crash is calling it again. */
export async function deleteStream(database: Database, { tenantId, name }: ResolvedStream): Promise<boolean> {
  const { rows } = await database.query<{ id: number }>(
    `update tallyman.log_streams set deleted_at = coalesce(deleted_at, now()), first_offset = next_offset, bytes = 0
      where tenant_id = $1 and name = $2 returning id`,
    [tenantId, name],
  );
  const id = rows[0]?.id;
  if (id === undefined) return false;
  await dropAll(database, id);
  const { rows: size } = await database.query<{ pages: number }>(
    `select (pg_relation_size('tallyman.log_keys') / current_setting('block_size')::int)::int as pages`,
  );
  // There is no index on the stream: it would cost every trim, and a stream is hardly ever deleted.
  for (let page = 0; page <= (size[0]?.pages ?? 0); page += pagesAtOnce)
    await database.query(
      'delete from tallyman.log_keys where ctid >= $2::tid and ctid < $3::tid and stream = $1',
      [id, `(${page},0)`, `(${page + pagesAtOnce},0)`],
    );
  await database.query('delete from tallyman.log_streams where id = $1', [id]);
  return true;
}

async function dropAll(database: Database, stream: number): Promise<void> {
  while ((await logDrop(database, { stream, limit: batch })) > 0);
}

async function firstOffset(database: Database, stream: number): Promise<number | undefined> {
  const { rows } = await database.query<{ first: number }>(
    'select first_offset::float8 as first from tallyman.log_streams where id = $1',
    [stream],
  );
  return rows[0]?.first;
}
