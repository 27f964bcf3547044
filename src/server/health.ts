import { type Component, engineComponent, requireMigrated } from '../engine/database/migrate.ts';
import { messageOf } from '../engine/errors.ts';
import { within } from '../engine/resilience/deadline.ts';
import type { Runtime } from '../host/process/open.ts';

export interface Readiness {
  readonly status: 'ready' | 'degraded' | 'unready';
  readonly checks: Readonly<Record<string, { readonly status: 'up' | 'down'; readonly reason?: string }>>;
}

/** A database that does not answer in this time counts as down. */
const patienceMs = 3_000;

/**
 * Whether this process should get traffic. Without the database it can do nothing. Without a broker it works by polling
 * and is `degraded`, unless the configuration says that a broker is required.
 */
export async function readiness(
  runtime: Runtime,
  components: readonly Component[],
  requireBrokers: boolean,
): Promise<Readiness> {
  const { database } = runtime.tallyman;
  const checks: Record<string, { status: 'up' | 'down'; reason?: string }> = {};
  const check = async (name: string, work: Promise<unknown>): Promise<void> => {
    checks[name] = await within(work, patienceMs).then(
      () => ({ status: 'up' as const }),
      (error) => ({ status: 'down' as const, reason: messageOf(error) }),
    );
  };
  await check('database', database.query('select 1'));
  if (checks.database?.status === 'up')
    await check('migrations', requireMigrated(database, [engineComponent, ...components]));
  const vital = Object.values(checks).every(({ status }) => status === 'up');
  const brokers = runtime.brokers();
  for (const { name, trouble } of brokers)
    checks[name] = trouble === undefined ? { status: 'up' } : { status: 'down', reason: trouble };
  const away = brokers.some(({ trouble }) => trouble !== undefined);
  return { status: !vital || (away && requireBrokers) ? 'unready' : away ? 'degraded' : 'ready', checks };
}
