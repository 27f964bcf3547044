import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { type Command, InvalidArgumentError } from 'commander';
import { messageOf, TallymanError } from '../engine/errors.ts';
import type { AnyKind } from '../engine/jobs/kind.ts';
import { exitCodes, usage } from '../host/cli/exit.ts';
import { examples, repeatable, wholeNumber } from '../host/cli/options.ts';
import type { CommandFrame } from '../host/cli/session.ts';
import { createLogger } from '../host/process/logger.ts';
import { openRuntime, workerOptions } from '../host/process/open.ts';
import { onStopSignal } from '../host/process/signals.ts';

interface WorkerCommandOptions {
  readonly concurrency?: number;
  readonly queues?: Readonly<Record<string, number>>;
  readonly migrate?: boolean;
}

export function addWorker(program: Command, frame: CommandFrame): void {
  program
    .command('worker')
    .description('run jobs until SIGTERM or Ctrl-C')
    .argument('<module>', 'file that exports kinds: made by defineKind, named or in the default export')
    .option(
      '-c, --concurrency <count>',
      'jobs and lanes run at once (default: jobs.concurrency)',
      wholeNumber(1, 10_000),
    )
    .option(
      '-q, --queues <names>',
      'only these queues; "labels=5" holds at most 5 of one; may be repeated',
      queueLimits,
    )
    .option('--migrate', 'bring the database up to date first')
    .addHelpText(
      'after',
      `${examples(['worker kinds.ts', 'worker dist/kinds.js --concurrency 50 --queues labels=5,carriers'])}

The first signal lets running jobs finish, for up to jobs.stopTimeoutMs, and
hands the rest back without costing an attempt; exit code 0. The second ends the
process at once: 130 after SIGINT, 143 after SIGTERM.`,
    )
    .action((module: string, options: WorkerCommandOptions) => runWorker(module, options, frame));
}

async function runWorker(
  module: string,
  options: WorkerCommandOptions,
  { loadConfig, components }: CommandFrame,
): Promise<void> {
  const config = loadConfig();
  const kinds = await loadKinds(module);
  const logger = createLogger({ level: config['log.level'] });
  const runtime = await openRuntime(config, {
    logger,
    components,
    applicationName: 'tallyman worker',
    embedded: 'either',
    ...(options.migrate && { migrate: true }),
  });
  let lost: TallymanError | undefined;
  try {
    const worker = runtime.tallyman.worker({
      ...workerOptions(config),
      kinds,
      ...(options.concurrency !== undefined && { concurrency: options.concurrency }),
      ...(options.queues && { queues: options.queues }),
    });
    const stopped = new Promise<string>((stop) => onStopSignal(stop));
    logger.info(runtime.describe(), 'starting');
    await worker.start();
    const end = await Promise.race([stopped, runtime.lost]);
    const limit = config['jobs.stopTimeoutMs'] / 1000;
    if (end instanceof TallymanError) {
      lost = end;
      logger.error({ code: lost.code }, lost.message);
    } else
      logger.info(
        { signal: end, held: worker.held },
        `stopping; running jobs have ${limit} s, a second signal ends it at once`,
      );
  } finally {
    await runtime.close();
  }
  // Exit: a handler that exceeded its time limit would keep the process alive, though another worker has its job by now.
  process.exit(lost ? exitCodes.database : exitCodes.ok);
}

/** Every kind the module exports, each once. */
export async function loadKinds(path: string): Promise<AnyKind[]> {
  let module: Record<string, unknown>;
  try {
    module = (await import(pathToFileURL(resolve(path)).href)) as Record<string, unknown>;
  } catch (error) {
    throw new TallymanError('BAD_MODULE', `cannot load ${path}: ${messageOf(error)}`, { cause: error });
  }
  const kinds = new Set(Object.values(module).flat().filter(isKind));
  if (kinds.size === 0)
    throw usage(
      `${path} exports no kinds: export what defineKind returns, by name or in an array as default`,
    );
  return [...kinds];
}

/** Checks the shape, not the class: the module may have its own copy of the library. */
function isKind(value: unknown): value is AnyKind {
  if (typeof value !== 'object' || value === null) return false;
  const { name, queue, handler, backoff } = value as Partial<Record<keyof AnyKind, unknown>>;
  return (
    [name, queue].every((field) => typeof field === 'string') &&
    [handler, backoff].every((field) => typeof field === 'function')
  );
}

/** `labels=5,carriers` */
const queueLimits = repeatable(
  (text: string, previous: Record<string, number> = {}): Record<string, number> => {
    const limits = { ...previous };
    for (const part of text.split(',')) {
      const [, name, limit] = /^([^=]+)(?:=([1-9]\d{0,6}))?$/.exec(part.trim()) ?? [];
      if (name === undefined)
        throw new InvalidArgumentError('Expected names such as labels,carriers or labels=5.');
      limits[name] = limit === undefined ? 1_000_000 : Number(limit);
    }
    return limits;
  },
);
