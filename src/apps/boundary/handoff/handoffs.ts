/** How each hand-off gets on, known to all processes of a node: table boundary.handoffs. */
import type { Database, Queryable } from '../../../engine/database/database.ts';
import { TenantDatabase } from '../../../engine/database/tenant.ts';
import { emit } from '../../../events/emit.ts';
import { streamChanged, zoneChanged } from '../events.ts';
import { keyOf, ofStream } from '../store/postgres/stream-key.ts';
import type { StreamId } from '../store/store.ts';
import type { HandOffMode } from './loop.ts';

export interface HandOffState {
  /** Undefined where the other zone carries the stream. */
  readonly mode: HandOffMode | undefined;
  readonly modeSince: Date | undefined;
  readonly trouble: string | undefined;
  readonly stalledSince: Date | undefined;
}

interface Row {
  readonly stream: string;
  readonly mode: HandOffMode | null;
  readonly modeSince: Date | null;
  readonly trouble: string | null;
  readonly stalledSince: Date | null;
}

/** Of one tenant: few, so they are read at once. */
export async function handOffStates(
  database: Database,
  tenantId: string,
): Promise<(stream: StreamId) => HandOffState | undefined> {
  const { rows } = await new TenantDatabase(database, tenantId).query<Row>(
    `select concat_ws('/', buffer, from_zone, to_zone) as stream, mode, mode_since as "modeSince", trouble,
            stalled_since as "stalledSince"
       from boundary.handoffs`,
  );
  const states = new Map(rows.map((row) => [row.stream, row]));
  return ({ buffer, from, to }) => {
    const row = states.get(`${buffer}/${from}/${to}`);
    return (
      row && {
        mode: row.mode ?? undefined,
        modeSince: row.modeSince ?? undefined,
        trouble: row.trouble ?? undefined,
        stalledSince: row.stalledSince ?? undefined,
      }
    );
  };
}

/** Keeps the mode, and emits an event where the other zone went away or came back. */
export async function noteMode(
  database: Database,
  stream: StreamId,
  mode: HandOffMode,
  trouble: string | undefined,
): Promise<void> {
  await new TenantDatabase(database, stream.tenantId).transaction(async (tx) => {
    const before = await lock(tx, stream);
    await tx.query(
      `update boundary.handoffs
          set mode = $5, trouble = $6, mode_since = case when mode is distinct from $5 then clock_timestamp() else mode_since end
        where ${ofStream}`,
      [...keyOf(stream), mode, trouble ?? null],
    );
    const wasAway = before.mode === 'autonomous';
    const isAway = mode === 'autonomous';
    if (wasAway === isAway) return;
    const peer = stream.buffer === 'store' ? stream.to : stream.from;
    await emit(tx, zoneChanged(isAway ? 'autonomous' : 'connected', peer, stream, trouble));
  });
}

/** Keeps since when a stream is stalled. True: it was not known; then there is an event, too. */
export async function noteStalled(
  database: Database,
  stream: StreamId,
  isStalled: boolean,
): Promise<boolean> {
  return new TenantDatabase(database, stream.tenantId).transaction(async (tx) => {
    const before = await lock(tx, stream);
    if ((before.stalledSince !== null) === isStalled) return false;
    await tx.query(
      `update boundary.handoffs set stalled_since = case when $5 then clock_timestamp() end
        where ${ofStream}`,
      [...keyOf(stream), isStalled],
    );
    await emit(tx, streamChanged(isStalled ? 'stalled' : 'recovered', stream));
    return true;
  });
}

/** The row, made if it is not there, locked until the transaction ends. */
async function lock(tx: Queryable, stream: StreamId): Promise<Pick<Row, 'mode' | 'stalledSince'>> {
  await tx.query(
    `insert into boundary.handoffs (tenant_id, buffer, from_zone, to_zone) values ($1, $2, $3, $4) on conflict do nothing`,
    keyOf(stream),
  );
  const { rows } = await tx.query<Pick<Row, 'mode' | 'stalledSince'>>(
    `select mode, stalled_since as "stalledSince" from boundary.handoffs
      where ${ofStream} for update`,
    keyOf(stream),
  );
  return rows[0] ?? { mode: null, stalledSince: null };
}
