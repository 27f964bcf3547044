import type { Config } from '../config/keys.ts';
import { loadConfig } from '../config/load.ts';
import type { Component } from '../engine/database/migrate.ts';
import type { Tallyman } from '../engine/tallyman.ts';
import { createLogger } from '../host/process/logger.ts';
import { openRuntime } from '../host/process/open.ts';
import { components } from '../server/components.ts';

/** A command's Tallyman for as long as the command takes. */
export interface Session {
  readonly tallyman: Tallyman;
  readonly config: Config;
  /** The database's clock: ages are counted by it, not by the clock of this machine. */
  readonly now: Date;
}

/** Commands say what went wrong themselves; only warnings are worth a line of the log. */
export const commandLogger = () =>
  createLogger({ level: process.env.TALLYMAN_DEBUG === '1' ? 'debug' : 'warn' });

/** `needs`: parts beside the engine whose tables the command looks at. */
export async function withTallyman<T>(
  work: (session: Session) => Promise<T>,
  needs: readonly Component[] = [],
): Promise<T> {
  const config = loadConfig();
  const runtime = await openRuntime(config, {
    logger: commandLogger(),
    applicationName: 'tallyman cli',
    brokers: false,
    components,
    needs,
  });
  try {
    const { rows } = await runtime.tallyman.database.query<{ now: Date }>('select clock_timestamp() as now');
    return await work({ tallyman: runtime.tallyman, config, now: rows[0]?.now ?? new Date() });
  } finally {
    await runtime.close();
  }
}
