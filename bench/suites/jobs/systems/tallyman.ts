import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { JobContext, Kind } from '../../../../src/index.ts';
import {
  CONCURRENCY,
  type Handler,
  type OpenSystem,
  type Payload,
  type System,
  WRITING_POOL,
} from '../system.ts';
import { queuesOf, type Workload } from '../workloads.ts';

type Engine = typeof import('../../../../src/index.ts');
type Retention = 'zero' | 'default';

interface Settings {
  readonly engine: () => Promise<Engine>;
  readonly retention: Retention;
  /** Writes in `effects`: in one transaction with the job's completion (a function, or a statement), or on the pool beside it. */
  readonly writes: 'atomic' | 'statement' | 'plain';
}

/** The engine of another checkout. Its public API has to be the present one. */
const engineOf = (checkout: string): Promise<Engine> =>
  import(pathToFileURL(join(checkout, 'src', 'index.ts')).href);

/**
 * Everything as a user has it by default: fencing, heartbeats, polling, recovery and housekeeping are on. `zero` keeps
 * no history of successes, `default` keeps it for a week.
 */
async function open(databaseUrl: string, workload: Workload, settings: Settings): Promise<OpenSystem> {
  const { defineKind, Tallyman } = await settings.engine();
  const { retention, writes } = settings;
  const queues = queuesOf(workload);
  const tallyman = await Tallyman.open({
    databaseUrl,
    migrate: true,
    ...(workload === 'effects' && { poolSize: WRITING_POOL }),
    ...(retention === 'zero' && { retention: { keepMs: 0 } }),
  });
  let run: Handler = () => {};
  const definition = { name: 'bench', lane: { policy: 'skip' } } as const;
  const kind = defineKind<Payload>({ ...definition, handler: (payload) => run(payload) });
  const options = ({ lane, queue }: Payload) =>
    lane !== undefined ? { lane } : queue !== undefined ? { queue } : {};
  const start = async (kind: Kind<Payload>) => {
    const worker = tallyman.worker({
      kinds: [kind],
      concurrency: CONCURRENCY,
      ...(queues.length > 0 && { queues }),
    });
    await worker.start();
    return () => worker.stop();
  };
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
    async enqueueIn(tx, payload) {
      await tallyman.enqueue(kind, payload, { ...options(payload), tx });
    },
    work(handler) {
      run = handler;
      return start(kind);
    },
    workWithWrites(handler) {
      const onPool = (payload: Payload) =>
        handler(payload, (text, values) => tallyman.database.query(text, values));
      const atomically = (payload: Payload, context: JobContext) =>
        handler(payload, (text, values) => context.commit((tx) => tx.query(text, values)));
      const asStatement = (payload: Payload, context: JobContext) =>
        handler(payload, (text, values) => context.commit(text, values));
      const handlers = { plain: onPool, atomic: atomically, statement: asStatement };
      return start(defineKind({ ...definition, handler: handlers[writes] }));
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

function system(settings: Settings): System {
  return {
    store: 'postgres',
    bulkChunk: 5_000,
    open: (url, workload) => open(url, workload, settings),
  };
}

const engine = () => import('../../../../src/index.ts');

export const tallyman = system({ engine, retention: 'zero', writes: 'atomic' });
export const tallymanHistory = system({ engine, retention: 'default', writes: 'atomic' });
/** `ctx.commit` with the statement itself: effects of several jobs share a commit. */
export const tallymanStatement: System = {
  ...system({ engine, retention: 'zero', writes: 'statement' }),
  skips: (workload) => workload !== 'effects',
};
export const tallymanPlain: System = {
  ...system({ engine, retention: 'zero', writes: 'plain' }),
  skips: (workload) => workload !== 'effects',
};

export function tallymanOf(checkout: string | undefined, retention: Retention): System {
  if (checkout === undefined) throw new Error('No --baseline was given: there is no engine to compare with.');
  return system({ engine: () => engineOf(checkout), retention, writes: 'atomic' });
}
