import type { Database } from '../../engine/database/database.ts';
import { EventFollower } from '../../events/follower.ts';

/** Turns events into deliveries: run it beside a worker with `webhookKinds`. One process in the fleet works at a time. */
export const webhookFollower = (
  database: Database,
  options: { readonly pollMs?: number } = {},
): EventFollower =>
  new EventFollower({
    database,
    listener: 'webhooks',
    handle: async (tx, { after, upTo }) => {
      await tx.query('select tallyman_webhooks.fan_out($1, $2)', [after, upTo]);
    },
    ...options,
  });
