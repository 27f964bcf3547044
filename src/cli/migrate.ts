import type { Command } from 'commander';
import type { Config } from '../config/keys.ts';
import { Database } from '../engine/database/database.ts';
import { engineComponent, type MigrationReport, migrate } from '../engine/database/migrate.ts';
import { examples, type JsonOption, withJson } from '../host/cli/options.ts';
import { show } from '../host/cli/output/print.ts';
import { count } from '../host/cli/output/text.ts';
import { type CommandFrame, commandLogger } from '../host/cli/session.ts';
import { reachDatabase } from '../host/process/database.ts';

export function addMigrate(program: Command, frame: CommandFrame): void {
  withJson(program.command('migrate'))
    .description('bring the database up to date; safe while older versions of the program run')
    .option('--dry-run', 'only tell what would be done')
    .addHelpText('after', examples(['migrate', 'migrate --dry-run']))
    .action(async (options: JsonOption & { dryRun?: boolean }) => {
      const dryRun = options.dryRun === true;
      const report = await withDatabase(frame.loadConfig(), (database) =>
        migrate(database, { dryRun, components: [engineComponent, ...frame.components] }),
      );
      const names = (list: MigrationReport['applied']) =>
        list.map(({ component, name }) => `${component}/${name}`);
      const applied = names(report.applied);
      const pending = names(report.pending);
      show(options.json, { applied, pending, current: report.current }, () => {
        const list = dryRun ? pending : applied;
        if (list.length === 0) return `The database is up to date (${count(report.current, 'migration')}).`;
        const head = dryRun ? 'Would apply' : 'Applied';
        return [`${head} ${count(list.length, 'migration')}:`, ...list.map((name) => `  ${name}`)].join('\n');
      });
    });
}

/** Connections alone, whatever state the database is in. */
export async function withDatabase<T>(config: Config, work: (database: Database) => Promise<T>): Promise<T> {
  const logger = commandLogger();
  const reached = await reachDatabase(config, { logger });
  try {
    const database = await Database.connect({
      url: reached.url,
      poolSize: 2,
      logger,
      applicationName: 'tallyman cli',
    });
    return await work(database).finally(() => database.close());
  } finally {
    await reached.close();
  }
}
