import { defineKind, Tallyman } from '../../../../src/index.ts';
import { CONCURRENCY, type Handler, type OpenSystem, type Payload, type System } from '../system.ts';

/**
 * Everything as a user has it by default: fencing, heartbeats, polling, recovery and housekeeping are on. `zero` keeps
 * no history of successes, `default` keeps it for a week.
 */
async function open(databaseUrl: string, retention: 'zero' | 'default'): Promise<OpenSystem> {
  const tallyman = await Tallyman.open({
    databaseUrl,
    migrate: true,
    ...(retention === 'zero' && { retention: { keepMs: 0 } }),
  });
  let run: Handler = () => {};
  const kind = defineKind<Payload>({
    name: 'bench',
    lane: { policy: 'skip' },
    handler: (payload) => run(payload),
  });
  const options = ({ lane }: Payload) => (lane === undefined ? {} : { lane });
  return {
    async enqueue(payload) {
      await tallyman.enqueue(kind, payload, options(payload));
    },
    async enqueueMany(payloads) {
      await tallyman.enqueueMany(
        kind,
        payloads.map((payload) => ({ payload, ...options(payload) })),
      );
    },
    async work(handler) {
      run = handler;
      const worker = tallyman.worker({ kinds: [kind], concurrency: CONCURRENCY });
      await worker.start();
      return () => worker.stop();
    },
    async unfinished() {
      const { rows } = await tallyman.database.query<{ n: number }>(
        'select count(*)::integer as n from tallyman.jobs where scheduled_at <= now()',
      );
      return rows[0]?.n ?? Number.NaN;
    },
    async litter(dead, future) {
      await tallyman.database.query(
        `insert into tallyman.dead_letters (id, queue, kind, tenant_id, entity_id, priority, attempts, max_attempts,
           created_at, first_failed_at, last_failed_at, payload)
         select nextval('tallyman.positions'), 'default', 'bench', 'default', '', 2, 5, 5, now(), now(), now(), '{}'
           from generate_series(1, $1)`,
        [dead],
      );
      for (let left = future; left > 0; left -= 5000)
        await tallyman.enqueueMany(
          kind,
          Array.from({ length: Math.min(5000, left) }, () => ({
            payload: { index: -1 },
            delayMs: 365 * 86_400_000,
          })),
        );
    },
    close: () => tallyman.close(),
  };
}

export const tallyman: System = {
  store: 'postgres',
  bulkChunk: 5_000,
  open: (url) => open(url, 'zero'),
};

export const tallymanHistory: System = {
  ...tallyman,
  open: (url) => open(url, 'default'),
};
