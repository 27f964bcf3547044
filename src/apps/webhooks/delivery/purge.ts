import type { Database, Queryable } from '../../../engine/database/database.ts';
import { defineKind, type Kind } from '../../../engine/jobs/kind.ts';
import type { NewSchedule } from '../../../engine/schedules/schedules.ts';

export const webhookQueue = 'webhooks';

const kindName = 'webhook.purge';
/** Events forgotten in one statement, so that none holds locks for long. */
const bite = 1000;

/** Every night; for `tallyman.schedules.upsert`, where a worker with `webhookKinds` runs. */
export const purgeSchedule: NewSchedule = {
  name: kindName,
  cron: '17 3 * * *',
  kind: kindName,
  payload: {},
};

export function purgeKind(database: Database, keepMs = 30 * 24 * 3_600_000): Kind<unknown> {
  return defineKind({
    name: kindName,
    queue: webhookQueue,
    priority: 3,
    scope: 'all',
    acrossTenants: 'forgets what is old, of all tenants, by the one age that is configured',
    handler: () => purge(database, keepMs),
  });
}

/** Answers how many events were forgotten. */
export async function purge(on: Queryable, keepMs: number): Promise<number> {
  for (let gone = 0; ; ) {
    const { rows } = await on.query<{ n: number }>(
      `select tallyman_webhooks.purge($1 * interval '1 millisecond', $2) as n`,
      [keepMs, bite],
    );
    const n = rows[0]?.n ?? 0;
    gone += n;
    if (n < bite) return gone;
  }
}
