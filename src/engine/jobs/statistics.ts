import type { Database } from '../database/database.ts';
import { outgrownTables } from '../sql/outgrown-tables.ts';

/**
 * Makes all sessions plan their statements again once the engine's tables have outgrown the plans (functions/statistics.sql). Without it
 * a burst of jobs in lanes that meets an empty queue is worked off at a fraction of the speed until autovacuum comes by.
 *
 * SKIP_LOCKED: another worker, or autovacuum, is at it already.
 */
export async function refreshStatistics(database: Database): Promise<void> {
  for (const table of await outgrownTables(database)) {
    database.logger.debug({ table }, 'analyzing a table that has grown');
    await database.query(`analyze (skip_locked) ${table}`);
  }
}
