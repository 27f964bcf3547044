import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import { pause } from '../../engine/resilience/deadline.ts';
import { epcisDocument, readMovements } from './epcis.ts';

export interface ExportRange {
  readonly from?: string;
  readonly to?: string;
  /** `tallyman:nextCursor` of the document before. */
  readonly cursor?: string;
  readonly limit?: number;
}

/** A transaction that writes movements takes milliseconds. */
const settleMs = 5_000;

/**
 * A document of all movements and corrections after the cursor, piece by piece. Its `tallyman:nextCursor` is where the next one begins: nothing
 * is missing between the two, and nothing is in both.
 */
export async function epcisExport(
  on: Queryable,
  tenantId: string,
  { cursor = '0', limit, ...range }: ExportRange,
): Promise<AsyncGenerator<string>> {
  const upTo = await settledMovement(on, settleMs);
  const movements = readMovements(on, {
    tenantId,
    ...range,
    after: cursor,
    upTo,
    ...(limit !== undefined && { limit }),
  });
  const isFurther = BigInt(upTo) > BigInt(cursor);
  return epcisDocument(movements, {
    // A document that was cut by its limit ends with its last movement; another one has seen all there is.
    nextCursor: (last, count) => (count === limit && last ? last.id : isFurther ? upTo : cursor),
  });
}

/**
 * The id up to which no movement can appear any more. Ids are drawn before they are committed, so a movement may appear
 * below one that is there already. Who draws ids has locked `rfid.baskets` for writing before: so once those that hold
 * that lock now have ended, everything up to the last id drawn by now is there, or never will be.
 */
async function settledMovement(on: Queryable, waitMs: number): Promise<string> {
  const { rows } = await on.query<{ id: string; writers: string[] }>(
    `select coalesce(pg_sequence_last_value('rfid.movement_ids'), 0)::text as id, (${writers}) as writers`,
  );
  const { id = '0', writers: before = [] } = rows[0] ?? {};
  for (const deadline = performance.now() + waitMs; before.length > 0; await pause(20)) {
    const still = await on.query<{ writers: string[] }>(`select (${writers}) as writers`);
    if (!still.rows[0]?.writers.some((writer) => before.includes(writer))) break;
    if (performance.now() > deadline)
      throw new TallymanError(
        'BUSY',
        `a transaction has been writing baskets for more than ${waitMs / 1000} s; export again when it has ended`,
      );
  }
  return id;
}

const writers = `select coalesce(array_agg(distinct l.virtualtransaction), '{}') from pg_locks l
  where l.locktype = 'relation' and l.relation = 'rfid.baskets'::regclass and l.mode = 'RowExclusiveLock' and l.granted
    and l.database = (select d.oid from pg_database d where d.datname = current_database()) and l.pid <> pg_backend_pid()`;
