import { Command, CommanderError } from 'commander';
import { addLabels } from '../apps/labels/commands.ts';
import { addRfid } from '../apps/rfid/commands.ts';
import { addReplay } from '../apps/rfid/replay-command.ts';
import { addWebhooks } from '../apps/webhooks/commands.ts';
import { version } from '../engine/version.ts';
import { addConfig } from './config.ts';
import { addDeadLetters } from './dead-letters.ts';
import { addDoctor } from './doctor.ts';
import { exitCodeHelp, exitCodes, explain } from './exit.ts';
import { addJobs } from './jobs.ts';
import { addKeys } from './keys.ts';
import { addLanes } from './lanes.ts';
import { addMigrate } from './migrate.ts';
import { complain } from './output/print.ts';
import { addQueues } from './queues.ts';
import { addSchedules } from './schedules.ts';
import { addServe } from './serve.ts';
import { addSimulate } from './simulate.ts';
import { addTenants } from './tenants.ts';
import { addWorker } from './worker.ts';

/** Answers the exit code; never throws. */
export async function run(args: readonly string[]): Promise<number> {
  // Whatever an action leaves here is the answer, so that one that did half of its work can say so.
  process.exitCode = exitCodes.ok;
  try {
    await buildProgram().parseAsync(args, { from: 'user' });
    return Number(process.exitCode);
  } catch (error) {
    // Commander has printed its message, or the help that was asked for.
    if (error instanceof CommanderError) return error.exitCode === 0 ? exitCodes.ok : exitCodes.usage;
    const { message, exitCode } = explain(error);
    complain(`error: ${message}`);
    if (process.env.TALLYMAN_DEBUG === '1' && error instanceof Error) complain(String(error.stack));
    return exitCode;
  }
}

export function buildProgram(): Command {
  const program = new Command('tallyman')
    .description(
      'Looks after jobs, lanes, queues and dead letters; runs the server and workers; keeps the database up to date.',
    )
    .version(version(), '-V, --version')
    .option('--config <file>', 'configuration file (default: tallyman.config.json where there is one)')
    .exitOverride()
    .showSuggestionAfterError()
    .showHelpAfterError('(--help shows how it is used)')
    .configureHelp({ showGlobalOptions: false })
    .hook('preAction', () => {
      const { config } = program.opts<{ config?: string }>();
      if (config !== undefined) process.env.TALLYMAN_CONFIG = config;
    });
  addJobs(program);
  addDeadLetters(program);
  addLanes(program);
  addQueues(program);
  addSchedules(program);
  addWebhooks(program);
  addServe(program);
  addWorker(program);
  addRfid(program);
  addLabels(program);
  addReplay(program);
  addTenants(program);
  addKeys(program);
  addMigrate(program);
  addDoctor(program);
  addConfig(program);
  addSimulate(program);
  program.addHelpText(
    'after',
    `${exitCodeHelp}

The database is DATABASE_URL. Without it, the embedded PostgreSQL under
.tallyman/ in this folder is used, and started for the command where nothing
has it running. \`tallyman config --docs\` explains every setting.
TALLYMAN_DEBUG=1 shows where an error came from.`,
  );
  return program;
}
