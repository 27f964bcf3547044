import type { Queryable } from '../../../engine/database/database.ts';

/** A table whose oldest rows can be deleted: ids grow with time. */
export interface Forgettable {
  readonly table: 'iot.tag_reads' | 'iot.device_events' | 'rfid.tag_read_processings';
  /** The column that tells how old a row is. */
  readonly at: 'received_at' | 'processed_at';
}

export interface ForgetOptions {
  readonly keepMs: number;
  /** Rows above this id stay, however old they are. */
  readonly upTo?: string | undefined;
  readonly signal?: AbortSignal;
}

const horizon: Record<Forgettable['table'], string> = {
  'iot.tag_reads': '',
  'iot.device_events': '',
  'rfid.tag_read_processings': `,
       horizons as (
         insert into rfid.read_horizons as h (tenant_id, forgotten_to)
         select tenant_id, max(event_timestamp) from deleted where basket_id is not null group by 1 order by 1
         on conflict (tenant_id) do update set forgotten_to = greatest(h.forgotten_to, excluded.forgotten_to))`,
};

/** Rows deleted in one statement, so that none holds locks for long. */
const batchSize = 5000;

/**
 * Deletes rows older than `keepMs`, oldest first, and returns how many. It walks the primary key in batches and stops at the
 * first batch with a row that is young enough. Each batch begins where the last one ended, because the index still has the
 * entries of deleted rows. The statement that deletes processed reads moves their horizon: late reads from before it are stale.
 */
export async function forgetOldest(
  on: Queryable,
  { table, at }: Forgettable,
  { keepMs, upTo, signal }: ForgetOptions,
): Promise<number> {
  let gone = 0;
  for (let after = '0'; !signal?.aborted; ) {
    const { rows } = await on.query<{ seen: number; gone: number; last: string | null }>(
      `with oldest as materialized (
         select id, ${at} as at from ${table} where id > $1 and ($4::bigint is null or id <= $4) order by id limit $3),
       deleted as (
         delete from ${table} t using oldest o
          where t.id = o.id and o.at < now() - $2 * interval '1 millisecond' returning t.*)${horizon[table]}
       select (select count(*)::integer from oldest) as seen, (select count(*)::integer from deleted) as gone,
              (select max(id) from oldest) as last`,
      [after, keepMs, batchSize, upTo ?? null],
    );
    const [row] = rows;
    gone += row?.gone ?? 0;
    if (!row || row.gone < row.seen || row.seen < batchSize) return gone;
    after = row.last ?? after;
  }
  return gone;
}
