import type { Command } from 'commander';
import { TallymanError } from '../engine/errors.ts';
import { version } from '../engine/version.ts';
import { exitCodes } from '../host/cli/exit.ts';
import { examples, list, wholeNumber } from '../host/cli/options.ts';
import { complain } from '../host/cli/output/print.ts';
import type { CommandFrame } from '../host/cli/session.ts';
import { partNames, partsOf } from '../host/parts.ts';
import { createLogger } from '../host/process/logger.ts';
import { onStopSignal } from '../host/process/signals.ts';
import { loadKinds } from './worker.ts';

interface ServeCommandOptions {
  readonly only?: readonly string[];
  readonly host?: string;
  readonly port?: number;
  readonly kinds?: string;
  readonly migrate?: boolean;
}

export function addServe(program: Command, frame: CommandFrame): void {
  program
    .command('serve')
    .description('run the HTTP API, workers and deliveries until SIGTERM or Ctrl-C')
    .option(
      '--only <parts>',
      `some of ${partNames(frame.apps).join(', ')}; may be repeated (default: server.parts)`,
      list,
    )
    .option('--host <address>', 'where the API listens (default: server.host)')
    .option('--port <number>', 'its port, 0 for any free one (default: server.port)', wholeNumber(0, 65_535))
    .option('--kinds <module>', 'file that exports the kinds to run (default: server.kinds)')
    .option('--migrate', 'bring the database up to date first')
    .addHelpText(
      'after',
      `${examples(['serve', 'serve --only api --port 8080', 'serve --only worker --only webhooks --kinds dist/kinds.js'])}

Without API keys the API answers this machine alone; \`tallyman keys create\`
makes the first one. The first signal lets requests and running jobs finish, for
up to jobs.stopTimeoutMs; the second ends the process at once.`,
    )
    .action((options: ServeCommandOptions) => runServe(options, frame));
}

async function runServe(options: ServeCommandOptions, { apps, loadConfig }: CommandFrame): Promise<void> {
  const loaded = loadConfig();
  const config = {
    ...loaded,
    ...(options.host !== undefined && { 'server.host': options.host }),
    ...(options.port !== undefined && { 'server.port': options.port }),
  };
  const parts = partsOf(options.only?.join(',') ?? config['server.parts'], apps);
  const module = options.kinds ?? config['server.kinds'];
  const kinds = module === null ? [] : await loadKinds(module);
  const logger = createLogger({ level: config['log.level'] });
  const stopped = new Promise<string>((stop) => onStopSignal(stop));
  // Import late: loading the HTTP server takes half of a command's start time.
  const { serve } = await import('../host/serve.ts');
  const serving = await serve({
    apps,
    config,
    parts,
    kinds,
    version: version(),
    logger,
    migrate: options.migrate === true,
  });
  if (process.stderr.isTTY) complain(serving.lines.map((line) => `  ${line}`).join('\n'));
  else logger.info({ parts, url: serving.url, runs: serving.lines }, 'serving');
  const end = await Promise.race([stopped, serving.lost]);
  const lost = end instanceof TallymanError;
  if (lost) logger.error({ code: end.code }, end.message);
  else
    logger.info(
      { signal: end },
      `stopping; what runs has ${config['jobs.stopTimeoutMs'] / 1000} s, a second signal ends it at once`,
    );
  await serving.stop();
  logger.info({}, 'stopped');
  // Exit: a handler that exceeded its time limit would keep the process alive, though another worker has its job by now.
  process.exit(lost ? exitCodes.database : exitCodes.ok);
}
