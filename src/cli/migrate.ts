import type { Command } from 'commander';
import { loadConfig } from '../config/load.ts';
import { Database } from '../engine/database/database.ts';
import { engineComponent, type MigrationReport, migrate } from '../engine/database/migrate.ts';
import { reachDatabase } from '../host/process/database.ts';
import { components } from '../server/components.ts';
import { examples, type JsonOption, withJson } from './options.ts';
import { show } from './output/print.ts';
import { count } from './output/text.ts';
import { commandLogger } from './session.ts';

export function addMigrate(program: Command): void {
  withJson(program.command('migrate'))
    .description('bring the database up to date; safe while older versions of the program run')
    .option('--dry-run', 'only tell what would be done')
    .addHelpText('after', examples(['migrate', 'migrate --dry-run']))
    .action(async (options: JsonOption & { dryRun?: boolean }) => {
      const dryRun = options.dryRun === true;
      const report = await withDatabase((database) =>
        migrate(database, { dryRun, components: [engineComponent, ...components] }),
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
export async function withDatabase<T>(work: (database: Database) => Promise<T>): Promise<T> {
  const logger = commandLogger();
  const reached = await reachDatabase(loadConfig(), { logger });
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
