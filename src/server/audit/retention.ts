import type { Queryable } from '../../engine/database/database.ts';
import type { Transactor } from '../../engine/locks/exclusive.ts';
import { type AuditChain, firstKeptSeal } from './chain.ts';

/**
 * Deletes events that were sealed more than `keepDays` ago (0: never), a seal at a time. The seals stay, so that the chain
 * can still be followed. Returns how many events are gone.
 */
export async function deleteOldEvents(on: Transactor, chain: AuditChain, keepDays: number): Promise<number> {
  if (keepDays === 0) return 0;
  let deleted = 0;
  for (;;) {
    const events = await on.transaction((tx) => prune(tx, chain, keepDays));
    if (events === undefined) return deleted;
    deleted += events;
  }
}

/** Undefined: no seal is old enough. */
async function prune(tx: Queryable, chain: AuditChain, keepDays: number): Promise<number | undefined> {
  await tx.query(`set local tallyman_server.audit_retention = 'on'`);
  const seal = await firstKeptSeal(tx);
  if (!seal) return undefined;
  const { rowCount } = await tx.query(
    `update tallyman_server.audit_seals set pruned = $2
      where seq = $1::bigint and sealed_at < now() - $3 * interval '1 day'`,
    [seal.seq, chain.pruned(seal), keepDays],
  );
  if (rowCount === 0) return undefined;
  const gone = await tx.query('delete from tallyman_server.audit_events where id <= $1::bigint', [
    seal.lastId,
  ]);
  return gone.rowCount ?? 0;
}
