import type { Database, Queryable } from '../engine/database/database.ts';
import { defineKind, type Kind } from '../engine/jobs/kind.ts';
import type { NewSchedule } from '../engine/schedules/schedules.ts';
import { heldUpAdvice, listenersHoldingUp } from './held-up.ts';

/** For the app whose worker runs the kind. */
export const purgeEventsDeclaration = {
  name: 'events.purge',
  acrossTenants: 'one age for the events of all tenants; takes nothing from its payload',
} as const;
/** Events deleted in one statement, so that none holds locks for long. */
const batchSize = 1000;
export const defaultKeepMs = 30 * 24 * 3_600_000;

/** Every night; for `tallyman.schedules.upsert`, where a worker with `purgeEventsKind` runs. */
export const purgeEventsSchedule: NewSchedule = {
  name: purgeEventsDeclaration.name,
  cron: '17 3 * * *',
  kind: purgeEventsDeclaration.name,
  payload: {},
};

export function purgeEventsKind(database: Database, keepMs = defaultKeepMs): Kind<unknown> {
  return defineKind({
    ...purgeEventsDeclaration,
    queue: 'webhooks',
    priority: 3,
    scope: 'all',
    handler: async () => {
      const gone = await purgeEvents(database, keepMs);
      for (const { listener, days, remedy } of await listenersHoldingUp(database, keepMs))
        database.logger.warn(
          { listener, days, advice: heldUpAdvice([remedy]) },
          'events are not purged: they wait for a listener that has not handled them',
        );
      return gone;
    },
  });
}

/** Returns how many events were deleted. */
export async function purgeEvents(on: Queryable, keepMs: number): Promise<number> {
  let gone = 0;
  for (let after: string | null = '0'; after !== null; ) {
    const found: { rows: { gone: number; last: string | null }[] } = await on.query(
      `select * from tallyman_events.purge($1 * interval '1 millisecond', $2, $3)`,
      [keepMs, after, batchSize],
    );
    gone += found.rows[0]?.gone ?? 0;
    after = found.rows[0]?.last ?? null;
  }
  return gone;
}
