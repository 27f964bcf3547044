import { z } from 'zod';
import type { Database } from '../../../engine/database/database.ts';
import { type AnyKind, type Backoff, defineKind } from '../../../engine/jobs/kind.ts';
import type { NewSchedule } from '../../../engine/schedules/schedules.ts';
import { type LabelTask, pushQueue } from '../changes/tasks.ts';
import { laneOf } from '../mac.ts';
import { checkDrift } from './drift.ts';
import type { Gateways } from './gateways.ts';
import { type LabelObserver, nobody } from './observer.ts';
import { Pusher } from './push.ts';

export interface LabelKindsOptions {
  readonly database: Database;
  readonly gateways: Gateways;
  /** Default: no metrics. */
  readonly observer?: LabelObserver;
  /** How long after a push its gateway is first asked whether the label shows it. Default 2000. */
  readonly askAfterMs?: number;
  /**
   * The `concurrency` of the worker: while several tenants have tasks, no tenant holds more than half of it. Default: tenants
   * have no share.
   */
  readonly slots?: number;
  /** How long a task waits after failed attempt `n`. Default the engine's: 2, 4, 8, … seconds. */
  readonly backoff?: Backoff;
}

/** A separate queue: the drift check runs however many changes wait. */
const checkQueue = 'label-checks';
const driftKind = 'labels.drift';

/** Eight attempts take a little over four minutes; then the task becomes a dead letter and the label's next task runs. */
const maxAttempts = 8;

const task = z.object({
  label: z.string(),
  mac: z.string(),
  panel: z.object({ width: z.number(), height: z.number(), palette: z.enum(['bw', 'bwr', 'bwy']) }),
  pages: z.array(
    z.object({
      page: z.number(),
      template: z.string().nullable(),
      values: z.record(z.string(), z.string()),
    }),
  ),
});

/**
 * The kinds that keep labels up to date. The lane skips a task that is given up (policy `skip`): a later image must not
 * wait forever behind one that cannot be shown, and the drift check finds what is missing.
 *
 * @example
 * const gateways = new Gateways(box);
 * const kinds = labelKinds({ database: tallyman.database, gateways, slots: 20 });
 * const worker = tallyman.worker({ kinds, concurrency: 20 });
 */
export function labelKinds(options: LabelKindsOptions): readonly AnyKind[] {
  const { database, gateways, observer = nobody, askAfterMs = 2000, backoff } = options;
  const { slots = Number.POSITIVE_INFINITY } = options;
  const pusher = new Pusher({ logger: database.logger, gateways, observer, askAfterMs, slots });
  return [
    defineKind<LabelTask>({
      name: 'labels.push',
      schema: task,
      queue: pushQueue,
      retry: { maxAttempts, ...(backoff && { backoff }) },
      lane: { key: ({ mac }) => laneOf(mac), policy: 'skip' },
      scope: 'tenant',
      handler: (payload, context) => pusher.run(payload, context),
    }),
    defineKind({
      name: driftKind,
      queue: checkQueue,
      priority: 1,
      scope: 'all',
      acrossTenants: 'one round looks at the stores of all tenants, and works on each under its own tenant',
      handler: (_, { signal }) => checkDrift({ database, gateways, observer }, signal),
    }),
  ];
}

/**
 * The drift check, as a schedule of the engine: any process can run it, and after a crash another one takes over. Rounds
 * that pile up while there is no worker become one.
 */
export const driftSchedule = (cron: string): NewSchedule => ({
  name: driftKind,
  cron,
  kind: driftKind,
  payload: {},
  lane: driftKind,
  latestOnly: true,
});
