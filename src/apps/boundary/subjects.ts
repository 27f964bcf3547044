/**
 * An index of facts by subject and message id, for time line and search: table boundary.subjects. It follows the logs a moment
 * later, so that an append costs nothing more. It is not needed for any promise.
 */
import type { Database } from '../../engine/database/database.ts';
import { TenantDatabase } from '../../engine/database/tenant.ts';
import { pause } from '../../engine/resilience/deadline.ts';
import { isGap } from './domain/record.ts';
import type { NodeParts } from './node.ts';
import { keyOf, ofStream } from './store/postgres/stream-key.ts';
import type { StreamId } from './store/store.ts';

const page = { limit: 500, maxBytes: 4 * 1024 * 1024 } as const;

/** While producers append, indexing sleeps four times as long as its last page took. */
const sleepFactor = 4;

/** Brings the index up to the end of every log. */
export async function indexSubjects(node: NodeParts, signal?: AbortSignal): Promise<void> {
  const { store, settings, intake } = node;
  const indexed = await indexedOffsets(node);
  for (const { tenantId, buffer, from, to, last } of await store.streams(settings.tenantId)) {
    const stream = { tenantId, buffer, from, to };
    if ((indexed.get(`${buffer}/${from}/${to}`) ?? 0) >= last) continue;
    for (let isMore = true; isMore && !signal?.aborted; ) {
      const begun = performance.now();
      isMore = await indexPage(node, stream);
      if (intake.isBusy) await pause(sleepFactor * (performance.now() - begun), signal);
    }
  }
}

async function indexedOffsets({ database, settings }: NodeParts): Promise<ReadonlyMap<string, number>> {
  const { rows } = await new TenantDatabase(database, settings.tenantId).query<{
    stream: string;
    offset: number;
  }>(
    `select concat_ws('/', buffer, from_zone, to_zone) as stream, indexed_offset::float8 as "offset"
       from boundary.streams where tenant_id = $1`,
    [settings.tenantId],
  );
  return new Map(rows.map(({ stream, offset }) => [stream, offset]));
}

/** One page, with the checkpoint in the same commit. Two processes may do the same page: it is written once. */
async function indexPage({ database, store }: NodeParts, stream: StreamId): Promise<boolean> {
  const on = new TenantDatabase(database, stream.tenantId);
  const { rows } = await on.query<{ offset: number }>(
    `select indexed_offset::float8 as "offset" from boundary.streams where ${ofStream}`,
    keyOf(stream),
  );
  const entries = await store.read(stream, { after: rows[0]?.offset ?? 0, ...page });
  const last = entries.at(-1);
  if (!last) return false;
  const facts = entries.flatMap(({ offset, record, appendedAt }) =>
    isGap(record) ? [] : [{ offset, record, appendedAt }],
  );
  await on.transaction(async (tx) => {
    await tx.query(
      `insert into boundary.subjects
         (tenant_id, buffer, from_zone, to_zone, subject, "offset", message_id, predicate, appended_at)
       select $1, $2, $3, $4, f.* from unnest($5::text[], $6::bigint[], $7::text[], $8::text[], $9::timestamptz[]) as f
       on conflict do nothing`,
      [
        ...keyOf(stream),
        facts.map(({ record }) => record.subject),
        facts.map(({ offset }) => offset),
        facts.map(({ record }) => record.messageId),
        facts.map(({ record }) => record.predicate),
        facts.map(({ appendedAt }) => appendedAt),
      ],
    );
    await tx.query(
      `insert into boundary.streams as s (tenant_id, buffer, from_zone, to_zone, indexed_offset)
       values ($1, $2, $3, $4, $5)
       on conflict (tenant_id, buffer, from_zone, to_zone)
       do update set indexed_offset = greatest(s.indexed_offset, excluded.indexed_offset)`,
      [...keyOf(stream), last.offset],
    );
  });
  return true;
}

const forgottenAtOnce = 5000;

/** Forgets facts below the first offset that is kept, in statements that end soon. Relies on subjects_pkey. */
export async function forgetSubjects(database: Database, stream: StreamId, first: number): Promise<void> {
  const on = new TenantDatabase(database, stream.tenantId);
  for (;;) {
    const { rowCount } = await on.query(
      `delete from boundary.subjects where ${ofStream} and "offset" < coalesce(
         (select s."offset" from boundary.subjects s where ${ofStream} and s."offset" < $5
           order by s."offset" offset $6 limit 1), $5)`,
      [...keyOf(stream), first, forgottenAtOnce],
    );
    if ((rowCount ?? 0) < forgottenAtOnce) return;
  }
}
