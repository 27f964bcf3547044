import { Command, CommanderError } from 'commander';
import { version } from '../engine/version.ts';
import type { App } from '../host/app.ts';
import { exitCodeHelp, exitCodes, explain } from '../host/cli/exit.ts';
import { refuseRepeated } from '../host/cli/options.ts';
import { complain } from '../host/cli/output/print.ts';
import { commandFrame } from '../host/cli/session.ts';
import { addAudit } from './audit.ts';
import { auditCommand } from './audited.ts';
import { addConfig } from './config.ts';
import { addDeadLetters } from './dead-letters.ts';
import { addDoctor } from './doctor.ts';
import { addEvents } from './events.ts';
import { addJobs } from './jobs.ts';
import { addKeys } from './keys.ts';
import { addLanes } from './lanes.ts';
import { addMigrate } from './migrate.ts';
import { addQueues } from './queues.ts';
import { addReset } from './reset.ts';
import { addSchedules } from './schedules.ts';
import { addSecrets } from './secrets.ts';
import { addServe } from './serve.ts';
import { addTenants } from './tenants.ts';
import { addWorker } from './worker.ts';

/** Returns the exit code; never throws. */
export async function run(args: readonly string[], apps: readonly App[]): Promise<number> {
  // An action sets its exit code here, so that one that did half of its work can report it.
  process.exitCode = exitCodes.ok;
  try {
    await buildProgram(apps).parseAsync(args, { from: 'user' });
    return Number(process.exitCode);
  } catch (error) {
    // Commander has printed its message, or the requested help.
    if (error instanceof CommanderError) return error.exitCode === 0 ? exitCodes.ok : exitCodes.usage;
    const { message, exitCode } = explain(error);
    complain(`error: ${message}`);
    if (process.env.TALLYMAN_DEBUG === '1' && error instanceof Error) complain(String(error.stack));
    return exitCode;
  }
}

export function buildProgram(apps: readonly App[]): Command {
  let running: Command | undefined;
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
    .hook('preAction', (_, action) => {
      running = action;
      const { config } = program.opts<{ config?: string }>();
      if (config !== undefined) process.env.TALLYMAN_CONFIG = config;
    });
  const frameOf = (app?: App) =>
    commandFrame(apps, app, (session, ended) => auditCommand(session, running, ended));
  const frame = frameOf();
  for (const add of [addJobs, addDeadLetters, addLanes, addQueues, addSchedules, addEvents])
    add(program, frame);
  for (const add of [
    addServe,
    addWorker,
    addTenants,
    addKeys,
    addAudit,
    addSecrets,
    addMigrate,
    addReset,
    addDoctor,
    addConfig,
  ])
    add(program, frame);
  for (const app of apps) app.commands?.(program, frameOf(app));
  refuseRepeated(program);
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
