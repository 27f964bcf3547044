import type { Queryable } from '../../../engine/database/database.ts';

/** A table of which the oldest rows can be forgotten: ids grow with time. */
export interface Forgettable {
  readonly table: 'iot.tag_reads' | 'rfid.tag_read_processings';
  /** The column that tells how old a row is. */
  readonly at: 'received_at' | 'processed_at';
}

export interface ForgetOptions {
  readonly keepMs: number;
  /** Rows above this id stay, however old they are. */
  readonly upTo?: string | undefined;
  readonly signal?: AbortSignal;
}

/** Rows deleted in one statement, so that none holds locks for long. */
const bite = 5000;

/**
 * Deletes rows that are older than that, oldest first; answers how many. It walks the primary key and stops at the first bite in which
 * a row is young enough. Each bite begins where the last one ended: the entries of deleted rows are still in the index.
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
          where t.id = o.id and o.at < now() - $2 * interval '1 millisecond' returning t.id)
       select (select count(*)::integer from oldest) as seen, (select count(*)::integer from deleted) as gone,
              (select max(id) from oldest) as last`,
      [after, keepMs, bite, upTo ?? null],
    );
    const [row] = rows;
    gone += row?.gone ?? 0;
    if (!row || row.gone < row.seen || row.seen < bite) return gone;
    after = row.last ?? after;
  }
  return gone;
}
