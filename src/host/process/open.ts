import type { Config } from '../../config/keys.ts';
import type { Component } from '../../engine/database/migrate.ts';
import type { WorkerOptions } from '../../engine/jobs/worker-options.ts';
import type { LaneLock } from '../../engine/locks/lane-lock.ts';
import type { Logger } from '../../engine/logger.ts';
import { Tallyman } from '../../engine/tallyman.ts';
import type { Wakeup } from '../../engine/wakeups/wakeup.ts';
import { type ReachedDatabase, reachDatabase } from './database.ts';
import type { EmbeddedWish } from './embedded.ts';
import { withResetAdvice } from './reset-advice.ts';

export interface RuntimeOptions {
  readonly logger: Logger;
  /** Migrate the database first. The embedded one is always migrated. */
  readonly migrate?: boolean;
  /** Every component besides the engine: the embedded database has the tables of all. */
  readonly components: readonly Component[];
  /** The components whose tables must exist in any database. Default: none. */
  readonly needs?: readonly Component[];
  /** Shown in pg_stat_activity. */
  readonly applicationName?: string;
  /** See `EmbeddedWish`. Default `join`. */
  readonly embedded?: EmbeddedWish;
  /** Connect to the configured brokers. A process without a worker needs none. Default true. */
  readonly brokers?: boolean;
}

export interface Runtime {
  readonly tallyman: Tallyman;
  readonly embedded: ReachedDatabase['embedded'];
  readonly lost: ReachedDatabase['lost'];
  /** Where things run, as text without secrets. */
  describe(): Readonly<Record<string, string>>;
  /** The configured external services besides the database; `trouble` says why one is down. */
  brokers(): readonly { readonly name: string; readonly trouble: string | undefined }[];
  close(): Promise<void>;
}

/** Builds a Tallyman from the configuration. Modules that are not configured are not loaded. */
export async function openRuntime(config: Config, options: RuntimeOptions): Promise<Runtime> {
  const { logger } = options;
  const reached = await reachDatabase(config, options);
  const brokers = options.brokers ?? true;
  const wakeups: Wakeup[] = [];
  let laneLock: LaneLock | undefined;
  try {
    if (brokers) {
      wakeups.push(...(await openWakeups(config, logger)));
      laneLock = await openLaneLock(config, logger);
    }
    const tallyman = await Tallyman.open({
      databaseUrl: reached.url,
      poolSize: config['database.poolSize'],
      migrate: options.migrate ?? reached.embedded !== undefined,
      components: reached.embedded ? options.components : (options.needs ?? []),
      logger,
      ...(options.applicationName && { applicationName: options.applicationName }),
      jobs: { maxPayloadBytes: config['jobs.maxPayloadBytes'], maxAttempts: config['jobs.maxAttempts'] },
      retention: { keepMs: config['retention.keepMs'] },
      wakeups,
      // A process without a worker runs only a few queries.
      ...(!brokers && { warmConnections: 1 }),
      ...(laneLock && { laneLock }),
    });
    return {
      tallyman,
      embedded: reached.embedded,
      lost: reached.lost,
      describe: () => ({
        database: reached.where,
        'wake-ups': ['LISTEN/NOTIFY', ...wakeups.map((wakeup) => wakeup.name)].join(', '),
        'lane locks': ['PostgreSQL', ...(laneLock ? [laneLock.name] : [])].join(' and '),
      }),
      brokers: () => [
        ...wakeups.map((wakeup) => {
          const status = wakeup.status();
          return { name: wakeup.name, trouble: status.state === 'down' ? status.reason : undefined };
        }),
        ...(laneLock ? [{ name: laneLock.name, trouble: laneLock.trouble }] : []),
      ],
      close: async () => {
        await tallyman.close();
        await reached.close();
      },
    };
  } catch (error) {
    await laneLock?.stop();
    await reached.close();
    throw withResetAdvice(error, reached);
  }
}

/** The configured worker options. */
export function workerOptions(config: Config): Omit<WorkerOptions, 'kinds'> {
  return {
    concurrency: config['jobs.concurrency'],
    pollIntervalMs: config['jobs.pollIntervalMs'],
    leaseMs: config['jobs.leaseMs'],
    renewMs: config['jobs.renewMs'],
    stuckAfterMs: config['jobs.stuckAfterMs'],
    recoverIntervalMs: config['jobs.recoverIntervalMs'],
    stopTimeoutMs: config['jobs.stopTimeoutMs'],
  };
}

async function openWakeups(config: Config, logger: Logger): Promise<Wakeup[]> {
  const wakeups: Wakeup[] = [];
  const url = config['wakeups.rabbitmq.url'];
  if (config['wakeups.rabbitmq.enabled'] && url !== null) {
    const { rabbitmqWakeup } = await import('../../engine/wakeups/rabbitmq.ts');
    const exchange = config['wakeups.rabbitmq.exchange'];
    wakeups.push(
      rabbitmqWakeup({ url, exchange, routingKey: config['wakeups.rabbitmq.routingKey'], logger }),
    );
  }
  const servers = config['wakeups.nats.servers'];
  if (servers !== null) {
    const { natsWakeup } = await import('../../engine/wakeups/nats.ts');
    wakeups.push(natsWakeup({ servers: servers.split(',').map((server) => server.trim()), logger }));
  }
  return wakeups;
}

async function openLaneLock(config: Config, logger: Logger): Promise<LaneLock | undefined> {
  const url = config['lanes.redisUrl'];
  if (url === null) return undefined;
  const { redisLaneLock } = await import('../../engine/locks/redis.ts');
  return redisLaneLock({ url, logger });
}
