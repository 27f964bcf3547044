import type { Database } from '../../engine/database/database.ts';
import { EventFollower } from '../../events/follower.ts';
import { wakeForEvents } from './wake.ts';

/** Turns events into deliveries: run it beside a worker with `webhookKinds`. One process in the fleet works at a time. */
export const webhookFollower = (
  database: Database,
  options: { readonly pollMs?: number; readonly batch?: number } = {},
): EventFollower =>
  new EventFollower({
    database,
    listener: 'webhooks',
    handle: async (tx, { after, upTo }) => {
      await tx.query('select tallyman_webhooks.fan_out($1, $2)', [after, upTo]);
      await wakeForEvents(tx, after, upTo);
    },
    onPoison: 'set aside',
    leftovers: {
      exist: async (on) => {
        const { rows } = await on.query<{ any: boolean }>(
          'select exists (select 1 from tallyman_webhooks.held_back) as any',
        );
        return rows[0]?.any === true;
      },
      handle: async (tx) => {
        await tx.query('select tallyman_webhooks.release_held()');
      },
    },
    ...options,
  });
