import { setTimeout as sleep } from 'node:timers/promises';
import type { Database, Queryable } from '../../engine/database/database.ts';
import { exclusively } from '../../engine/locks/exclusive.ts';
import type { SecretBox } from '../../secrets/box.ts';
import { AuditChain, beginning, lastSeal } from './chain.ts';
import { deleteOldEvents } from './retention.ts';

/** One process seals at a time. */
const sealLock = 0x74616c6c7961754n;
/** Events that one seal covers, at most by their ids. */
const mostIds = 100_000n;
const lookAgainMs = 50;

/**
 * Seals the events that have come since the last seal, and deletes those that are older than `keepDays`. Returns how many
 * were sealed; undefined if another process is at it.
 */
export async function sealAudit(
  database: Database,
  box: SecretBox,
  { keepDays, signal }: { readonly keepDays: number; readonly signal: AbortSignal },
): Promise<number | undefined> {
  const horizon = await settledHorizon(database, signal);
  const chain = new AuditChain(box);
  const result = await exclusively(
    database,
    sealLock,
    async (section) => {
      let sealed = 0;
      for (let added = -1; added !== 0 && !section.signal.aborted; sealed += added)
        added = await section.transaction((tx) => addSeal(tx, chain, horizon));
      await deleteOldEvents(section, chain, keepDays);
      return sealed;
    },
    { signal },
  );
  return result.ran ? result.value : undefined;
}

/**
 * An id up to which the events are complete: every transaction that might have drawn a smaller one has ended. Ids are drawn
 * before the commit, so an event with a smaller id can appear late; transactions that were running when the highest
 * id was read are waited for.
 */
async function settledHorizon(database: Database, signal: AbortSignal): Promise<bigint> {
  const drawn = await database.query<{ last: string | null }>(
    `select pg_sequence_last_value(pg_get_serial_sequence('tallyman_server.audit_events', 'id')::regclass)::text as last`,
  );
  let running = await runningTransactions(database);
  while (running.size > 0) {
    signal.throwIfAborted();
    await sleep(lookAgainMs, undefined, { signal });
    const still = await runningTransactions(database);
    running = new Set([...running].filter((id) => still.has(id)));
  }
  return BigInt(drawn.rows[0]?.last ?? 0);
}

/** Of this database, by their virtual ids; without our own. */
async function runningTransactions(database: Database): Promise<Set<string>> {
  const { rows } = await database.query<{ id: string }>(
    `select l.virtualtransaction as id from pg_locks l
      where l.locktype = 'virtualxid' and l.pid is distinct from pg_backend_pid()
        and l.pid in (select a.pid from pg_stat_activity a where a.datname = current_database())`,
  );
  return new Set(rows.map(({ id }) => id));
}

/** Returns how many events it covers; 0: there were none. */
export async function addSeal(tx: Queryable, chain: AuditChain, horizon: bigint): Promise<number> {
  const before = (await lastSeal(tx)) ?? beginning;
  // Ids that belong to no event any more, such as those of undone transactions, are passed over.
  const { rows } = await tx.query<{ first: string | null; now: Date }>(
    `select min(id)::text as first, date_trunc('milliseconds', clock_timestamp()) as now
       from tallyman_server.audit_events where id > $1::bigint and id <= $2::bigint`,
    [before.lastId, String(horizon)],
  );
  const [found] = rows;
  if (!found || found.first === null) return 0;
  const end = BigInt(found.first) + mostIds - 1n;
  const lastId = String(end < horizon ? end : horizon);
  const { events, digest } = await chain.digest(tx, { after: before.lastId, lastId, keyId: chain.keyId });
  const seal = {
    seq: String(BigInt(before.seq) + 1n),
    lastId,
    events,
    keyId: chain.keyId,
    digest,
    sealedAt: found.now,
  };
  await tx.query(
    `insert into tallyman_server.audit_seals (seq, last_id, events, key_id, digest, sealed_at, hash)
     values ($1::bigint, $2::bigint, $3, $4, $5, $6, $7)`,
    [seal.seq, lastId, events, seal.keyId, digest, seal.sealedAt, chain.hash(seal, before.hash)],
  );
  return events;
}
