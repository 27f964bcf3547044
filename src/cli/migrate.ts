import type { Command } from 'commander';
import type { Config } from '../config/keys.ts';
import { Database } from '../engine/database/database.ts';
import { type Change, countChanges, engineComponent, migrate } from '../engine/database/migrate.ts';
import { examples, type JsonOption, withJson } from '../host/cli/options.ts';
import { show } from '../host/cli/output/print.ts';
import { count } from '../host/cli/output/text.ts';
import { type CommandFrame, commandLogger } from '../host/cli/session.ts';
import { reachDatabase } from '../host/process/database.ts';
import { withResetAdvice } from '../host/process/reset-advice.ts';

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
      const applied = report.applied.map(nameOf);
      const pending = report.pending.map(nameOf);
      const list = dryRun ? report.pending : report.applied;
      const breaking = list.filter(isBreaking).map(nameOf);
      show(options.json, { applied, pending, breaking, current: report.current }, () => {
        if (list.length === 0) return `The database is up to date (${count(report.current, 'migration')}).`;
        const head = `${dryRun ? 'Would apply' : 'Applied'} ${countChanges(list)}:`;
        const lines = list.map((change) => `  ${nameOf(change)}${isBreaking(change) ? '  (breaking)' : ''}`);
        return [head, ...lines, ...(breaking.length > 0 ? [breakingAdvice(dryRun)] : [])].join('\n');
      });
    });
}

const nameOf = ({ component, name }: Change): string => `${component}/${name}`;
const isBreaking = (change: Change): boolean => change.type === 'migration' && change.breaking;
const breakingAdvice = (dryRun: boolean): string =>
  dryRun
    ? '\nBreaking: programs of older versions cannot work with the database afterwards. Make a backup and stop them first.'
    : '\nBreaking: programs of older versions no longer start. Stop those that still run, and update them.';

/** Only connects, whatever state the database is in. */
async function withDatabase<T>(config: Config, work: (database: Database) => Promise<T>): Promise<T> {
  const logger = commandLogger();
  const reached = await reachDatabase(config, { logger });
  try {
    const database = await Database.connect({
      url: reached.url,
      poolSize: 2,
      logger,
      applicationName: 'tallyman cli',
    });
    return await work(database)
      .catch((error) => {
        throw withResetAdvice(error, reached);
      })
      .finally(() => database.close());
  } finally {
    await reached.close();
  }
}
