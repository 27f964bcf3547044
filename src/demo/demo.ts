/** Runs the demo of an app: a database, a broker and the API around it. */
import { dirname } from 'node:path';
import type { Config } from '../config/keys.ts';
import type { TallymanError } from '../engine/errors.ts';
import type { Logger } from '../engine/logger.ts';
import { version } from '../engine/version.ts';
import { apps } from '../host/apps.ts';
import { componentsOf } from '../host/components.ts';
import { loadConfig } from '../host/config.ts';
import type { Demo, DemoResult } from '../host/demo.ts';
import { reachDatabase } from '../host/process/database.ts';
import { createLogger } from '../host/process/logger.ts';
import { openRuntime, type Runtime } from '../host/process/open.ts';
import { withResetAdvice } from '../host/process/reset-advice.ts';
import { loadSecretBox } from '../host/process/secrets.ts';
import { onStopSignal } from '../host/process/signals.ts';
import { Metrics } from '../observability/metrics.ts';
import { type RunningServer, startServer } from '../server/server.ts';
import { openBroker } from './broker.ts';

export interface DemoOptions {
  readonly headless?: boolean;
  readonly for?: number;
}

export async function runDemo(demo: Demo, options: DemoOptions): Promise<DemoResult> {
  const isTerminal = process.stdout.isTTY === true && !options.headless;
  const logger = createLogger({
    level: 'warn',
    ...(isTerminal && { before: () => process.stdout.write('\r\x1b[K') }),
  });
  const config = loadConfig(apps);
  const components = componentsOf(apps);
  const stopping = new AbortController();
  let stoppedBy: string | undefined;
  let timer: NodeJS.Timeout | undefined;
  onStopSignal((signal) => {
    stoppedBy = signal === 'SIGINT' ? 'Ctrl-C' : signal;
    stopping.abort();
  });
  const closers: (() => Promise<void>)[] = [];
  const opened = <T>(thing: T, close: (thing: T) => Promise<void>): T => {
    closers.unshift(() => close(thing));
    return thing;
  };
  try {
    const reached = opened(await reachDatabase(config, { logger, embedded: 'own' }), (it) => it.close());
    const broker = opened(await openBroker(dirname(config['database.dataDir'])), (it) => it.close());
    const runtime = opened(
      await openRuntime(
        { ...config, 'database.url': reached.url },
        { logger, migrate: true, components, needs: components, applicationName: 'tallyman demo' },
      ).catch((error) => {
        throw withResetAdvice(error, reached);
      }),
      (it) => it.close(),
    );
    const metrics = new Metrics(runtime.tallyman);
    const api = opened(await startApi(config, runtime, metrics, logger), (it) => it.stop());
    return await demo.run(
      {
        tallyman: runtime.tallyman,
        databaseUrl: reached.url,
        broker,
        where: { database: reached.where, broker: broker.where, api: api.url },
        logger,
        isTerminal,
        begin: () => {
          if (options.for !== undefined) timer = setTimeout(() => stopping.abort(), options.for);
        },
        signal: stopping.signal,
        stoppedBy: () => stoppedBy,
        observe: (worker) => metrics.observe(worker),
      },
      options,
    );
  } finally {
    clearTimeout(timer);
    for (const close of closers) await close();
  }
}

/** On the configured port; on any free one if it is taken. */
async function startApi(
  config: Config,
  runtime: Runtime,
  metrics: Metrics,
  logger: Logger,
): Promise<RunningServer> {
  // One machine, one process: the secret can be in a file, whatever the database is.
  const box = await loadSecretBox({ ...config, 'database.url': null });
  const on = (port: number): Promise<RunningServer> =>
    startServer({
      config: { ...config, 'server.port': port },
      ...{ apps, runtime, metrics, box, kinds: [], version: version(), logger },
    });
  return on(config['server.port']).catch((error) => {
    if ((error as TallymanError).code === 'CANNOT_LISTEN') return on(0);
    throw error;
  });
}
