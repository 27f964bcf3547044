import type { Config } from '../../config/keys.ts';
import type { ConfigSchema } from '../../config/load.ts';
import type { Component } from '../../engine/database/migrate.ts';
import type { Tallyman } from '../../engine/tallyman.ts';
import type { App } from '../app.ts';
import { componentsFor, componentsOf } from '../components.ts';
import { configSchema, loadConfig } from '../config.ts';
import { createLogger } from '../process/logger.ts';
import { openRuntime } from '../process/open.ts';

/** A Tallyman that lives as long as the command. */
export interface Session {
  readonly tallyman: Tallyman;
  readonly config: Config;
  /** The database's clock: ages are counted by it, not by the clock of this machine. */
  readonly now: Date;
  /** Tells the audit the id of what the command has made. */
  readonly made: (id: string) => void;
}

/** What a command gets from the program it belongs to. */
export interface CommandFrame {
  /** Every app of the program. */
  readonly apps: readonly App[];
  readonly configSchema: ConfigSchema;
  /** Every component with tables besides the engine. */
  readonly components: readonly Component[];
  loadConfig(): Config;
  /** `needs`: components besides the engine whose tables the command uses. Default: those of its app. */
  withTallyman<T>(work: (session: Session) => Promise<T>, needs?: readonly Component[]): Promise<T>;
}

/** Commands report their own errors; only warnings go to the log. */
export const commandLogger = () =>
  createLogger({ level: process.env.TALLYMAN_DEBUG === '1' ? 'debug' : 'warn' });

/** Hears of every command that had a session, before the session ends. Does not throw. */
export type CommandEnded = (session: Session, ended: Ended) => Promise<void>;

export interface Ended {
  /** If it failed. */
  readonly error?: unknown;
  /** The id of what it has made. */
  readonly made?: string | undefined;
}

/** The session for commands of `app`; without one, for commands that belong to no app. */
export function commandFrame(apps: readonly App[], app?: App, onEnded?: CommandEnded): CommandFrame {
  const components = componentsOf(apps);
  return {
    apps,
    configSchema: configSchema(apps),
    components,
    loadConfig: () => loadConfig(apps),
    withTallyman: async (work, needs = app ? componentsFor(app, apps) : []) => {
      const config = loadConfig(apps);
      const runtime = await openRuntime(config, {
        logger: commandLogger(),
        applicationName: 'tallyman cli',
        brokers: false,
        components,
        needs,
      });
      try {
        const { database } = runtime.tallyman;
        const { rows } = await database.query<{ now: Date }>('select clock_timestamp() as now');
        let made: string | undefined;
        const session: Session = {
          tallyman: runtime.tallyman,
          config,
          now: rows[0]?.now ?? new Date(),
          made: (id) => {
            made = id;
          },
        };
        const result = await work(session).catch(async (error) => {
          await onEnded?.(session, { error });
          throw error;
        });
        await onEnded?.(session, { made });
        return result;
      } finally {
        await runtime.close();
      }
    },
  };
}
