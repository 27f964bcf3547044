import { wakeAfterCommit } from '../../engine/database/after-commit.ts';
import type { Queryable } from '../../engine/database/database.ts';

/** Wakes the workers that deliver, after the commit of `on`: for deliveries, by their ids. */
export const wakeForDeliveries = (on: Queryable, ids: readonly string[]): Promise<void> =>
  wake(on, 'id = any ($1::uuid[])', [ids]);

/** The same for deliveries of the events in (after, upTo]. Relies on dispatches_of_event. */
export const wakeForEvents = (on: Queryable, after: string, upTo: string): Promise<void> =>
  wake(on, 'event_id > $1 and event_id <= $2', [after, upTo]);

async function wake(on: Queryable, which: string, values: unknown[]): Promise<void> {
  const { rows } = await on.query<{ jobId: string | null }>(
    `select max(job_id)::text as "jobId" from tallyman_webhooks.dispatches where ${which}`,
    values,
  );
  const jobId = rows[0]?.jobId;
  if (jobId) wakeAfterCommit(on, [{ queue: 'webhooks', jobId }]);
}
