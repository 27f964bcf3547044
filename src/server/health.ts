import { type Component, engineComponent, requireMigrated } from '../engine/database/migrate.ts';
import { messageOf } from '../engine/errors.ts';
import type { Runtime } from '../host/process/open.ts';
import { SharedLook } from '../observability/shared-look.ts';

interface Check {
  readonly status: 'up' | 'down';
  readonly reason?: string;
}

export interface Readiness {
  readonly status: 'ready' | 'degraded' | 'unready';
  readonly checks: Readonly<Record<string, Check>>;
}

/** A database that does not answer in this time counts as down. */
const patienceMs = 3_000;
/** Probes need no key, so anybody can send them: however many come, the database is asked once in this time. */
const cacheMs = 1_000;

const up: Check = { status: 'up' };
const down = (reason: string): Check => ({ status: 'down', reason });

/**
 * Whether this process should get traffic. Without the database it can do nothing. Without a broker it works by polling
 * and is `degraded`, unless the configuration says that a broker is required.
 */
export class ReadinessProbe {
  readonly #runtime: Runtime;
  readonly #requireBrokers: boolean;
  readonly #database: SharedLook<Readonly<Record<string, Check>>>;

  constructor(runtime: Runtime, components: readonly Component[], requireBrokers: boolean) {
    this.#runtime = runtime;
    this.#requireBrokers = requireBrokers;
    this.#database = new SharedLook(() => lookAtDatabase(runtime, [engineComponent, ...components]), {
      cacheMs,
      patienceMs,
    });
  }

  async answer(): Promise<Readiness> {
    const { last, well } = await this.#database.answer();
    const vital = last && well ? last : { database: down(`no answer within ${patienceMs} ms`) };
    const brokers = this.#runtime.brokers();
    const isAway = brokers.some(({ trouble }) => trouble !== undefined);
    const isVital = Object.values(vital).every(({ status }) => status === 'up');
    return {
      status: !isVital || (isAway && this.#requireBrokers) ? 'unready' : isAway ? 'degraded' : 'ready',
      checks: {
        ...vital,
        ...Object.fromEntries(
          brokers.map(({ name, trouble }) => [name, trouble === undefined ? up : down(trouble)]),
        ),
      },
    };
  }
}

/** On the pool. Never throws: what is wrong is the answer. */
async function lookAtDatabase(
  { tallyman: { database } }: Runtime,
  components: readonly Component[],
): Promise<Readonly<Record<string, Check>>> {
  const check = (work: Promise<unknown>) =>
    work.then(
      () => up,
      (error) => down(messageOf(error)),
    );
  const reached = await check(database.query('select 1'));
  if (reached.status === 'down') return { database: reached };
  return { database: reached, migrations: await check(requireMigrated(database, components)) };
}

/** For callers without a key: reasons name hosts, and what is installed. */
export const withoutReasons = ({ status, checks }: Readiness): Readiness => ({
  status,
  checks: Object.fromEntries(Object.entries(checks).map(([name, check]) => [name, { status: check.status }])),
});
