/** Which streams have reached their limit. */
import type { Queryable } from '../../../../engine/database/database.ts';
import { emit } from '../../../../events/emit.ts';
import { streamChanged } from '../../events.ts';
import type { StreamId } from '../store.ts';
import { keyOf, ofStream } from './stream-key.ts';

/** Relies on streams_pkey. */
export async function fullSince(on: Queryable, stream: StreamId): Promise<Date | undefined> {
  const { rows } = await on.query<{ since: Date | null }>(
    `select full_since as since from boundary.streams
      where ${ofStream}`,
    keyOf(stream),
  );
  return rows[0]?.since ?? undefined;
}

/** Of one tenant: few, so they are read at once. */
export async function allFull(on: Queryable): Promise<(stream: StreamId) => Date | undefined> {
  const { rows } = await on.query<{ stream: string; since: Date }>(
    `select concat_ws('/', buffer, from_zone, to_zone) as stream, full_since as since
       from boundary.streams where full_since is not null`,
  );
  const since = new Map(rows.map((row) => [row.stream, row.since]));
  return ({ buffer, from, to }) => since.get(`${buffer}/${from}/${to}`);
}

/** The time of the first one that noticed stays, and only that one emits the event. */
export async function setFull(tx: Queryable, stream: StreamId, full: boolean): Promise<void> {
  const { rowCount } = await tx.query(
    `insert into boundary.streams as s (tenant_id, buffer, from_zone, to_zone, full_since)
     values ($1, $2, $3, $4, case when $5 then now() end)
     on conflict (tenant_id, buffer, from_zone, to_zone)
     do update set full_since = excluded.full_since where (s.full_since is null) = $5
     returning 1`,
    [...keyOf(stream), full],
  );
  if ((rowCount ?? 0) > 0) await emit(tx, streamChanged(full ? 'full' : 'accepting', stream));
}
