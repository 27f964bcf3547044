import { relative } from 'node:path';
import type { Command } from 'commander';
import { describe } from '../engine/database/database.ts';
import { exitCodes, usage } from '../host/cli/exit.ts';
import { examples, type JsonOption, withJson } from '../host/cli/options.ts';
import { complain, show } from '../host/cli/output/print.ts';
import { confirm } from '../host/cli/output/terminal.ts';
import { type CommandFrame, commandLogger } from '../host/cli/session.ts';

export function addReset(program: Command, { loadConfig }: CommandFrame): void {
  withJson(program.command('reset'))
    .description(
      'delete the embedded development database and all that is in it; the next command makes an empty one',
    )
    .option('-y, --yes', 'do not ask')
    .addHelpText(
      'after',
      `${examples(['reset', 'reset --yes'])}\n\nOnly for the embedded PostgreSQL: refused where DATABASE_URL is set, and while a process runs on it.`,
    )
    .action(async (options: JsonOption & { yes?: boolean }) => {
      const config = loadConfig();
      const url = config['database.url'];
      if (url !== null)
        throw usage(
          `database.url (DATABASE_URL) is set, and reset deletes the embedded development database only. ` +
            `To empty ${describe(url)}, drop the database and create it again with your own tools, then run: tallyman migrate`,
        );
      const dataDir = config['database.dataDir'];
      const shown = relative(process.cwd(), dataDir) || dataDir;
      const { hasEmbeddedData, resetEmbedded } = await import('../engine/database/embedded/reset.ts');
      const exists = await hasEmbeddedData(dataDir);
      if (exists && !options.yes) {
        if (!process.stdin.isTTY)
          throw usage(`this would delete the database in ${shown}; add --yes to do it without being asked`);
        if (!(await confirm(`Delete the embedded database in ${shown}, with every job and event in it?`))) {
          complain('Nothing was done.');
          process.exitCode = exitCodes.failed;
          return;
        }
      }
      if (exists) await resetEmbedded({ dataDir, logger: commandLogger() });
      show(options.json, { dataDir, deleted: exists }, () =>
        exists
          ? `Deleted the embedded database in ${shown}. The next command makes an empty one.`
          : `There is no embedded database in ${shown}.`,
      );
    });
}
