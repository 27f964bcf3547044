import type { Command } from 'commander';
import type { Config } from '../config/keys.ts';
import { Database } from '../engine/database/database.ts';
import { examine, type Finding } from '../engine/database/doctor.ts';
import { requireMigrated } from '../engine/database/migrate.ts';
import { isOutOfStep } from '../engine/database/migration-errors.ts';
import { examineJobs } from '../engine/jobs/check.ts';
import { examineListeners } from '../events/held-up.ts';
import { defaultKeepMs } from '../events/purge.ts';
import { explain } from '../host/cli/exit.ts';
import { examples, type JsonOption, withJson } from '../host/cli/options.ts';
import { reportFindings } from '../host/cli/report.ts';
import { type CommandFrame, commandLogger } from '../host/cli/session.ts';
import { reachDatabase } from '../host/process/database.ts';
import { withResetAdvice } from '../host/process/reset-advice.ts';

export function addDoctor(program: Command, frame: CommandFrame): void {
  const doctor = withJson(program.command('doctor'))
    .description('check versions, connection, pooler, clock, and settings that cost safety')
    .addHelpText(
      'after',
      `${examples(['doctor', 'doctor --json'])}\n\nExit code 5 where a check fails; warnings are not failures.`,
    )
    .action(async (options: JsonOption) => {
      const { where, findings } = await checkUp(frame.loadConfig());
      reportFindings(options, { database: where }, findings);
    });

  doctor
    .command('jobs')
    .description(
      'find work that can never move: jobs and lanes that no worker would reach, claims of workers that are gone',
    )
    .addHelpText(
      'after',
      `${examples(['doctor jobs', 'doctor jobs --json'])}\n\nExit code 5 where it finds any.`,
    )
    .action(async (_options: unknown, command: Command) => {
      const { where, findings } = await checkUp(frame.loadConfig(), async (database) => {
        await requireMigrated(database);
        return examineJobs(database);
      });
      reportFindings(command.optsWithGlobals(), { database: where }, findings);
    });
}

const isNotMigrated = (error: unknown): boolean => (error as { code?: string }).code === 'NOT_MIGRATED';

const examineAll = async (database: Database): Promise<readonly Finding[]> => [
  ...(await examine(database)),
  ...(await examineListeners(database, defaultKeepMs)),
];

/** A database that cannot be reached is a finding, too, and the most common reason to run the doctor. */
async function checkUp(
  config: Config,
  look: (database: Database) => Promise<readonly Finding[]> = examineAll,
): Promise<{ where: string; findings: readonly Finding[] }> {
  const logger = commandLogger();
  const reached = await reachDatabase(config, { logger });
  try {
    const database = await Database.connect({
      url: reached.url,
      poolSize: config['database.poolSize'],
      logger,
      applicationName: 'tallyman doctor',
    });
    const findings = await look(database).finally(() => database.close());
    return { where: reached.where, findings };
  } catch (error) {
    return {
      where: reached.where,
      findings: [
        {
          check: isNotMigrated(error) || isOutOfStep(error) ? 'migrations' : 'connection',
          level: 'fail',
          message: explain(withResetAdvice(error, reached)).message,
        },
      ],
    };
  } finally {
    await reached.close();
  }
}
