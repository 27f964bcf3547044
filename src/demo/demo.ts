import { dirname } from 'node:path';
import { type MqttOptions, mqttSettings } from '../apps/iot/mqtt/index.ts';
import { registerDoors, startIntake } from '../apps/rfid/intake/index.ts';
import type { Config } from '../config/keys.ts';
import { messageOf, TallymanError } from '../engine/errors.ts';
import type { Logger } from '../engine/logger.ts';
import { pause } from '../engine/resilience/deadline.ts';
import { version } from '../engine/version.ts';
import { apps } from '../host/apps.ts';
import { print } from '../host/cli/output/print.ts';
import { componentsOf } from '../host/components.ts';
import { loadConfig } from '../host/config.ts';
import { reachDatabase } from '../host/process/database.ts';
import { createLogger } from '../host/process/logger.ts';
import { openRuntime, type Runtime } from '../host/process/open.ts';
import { withResetAdvice } from '../host/process/reset-advice.ts';
import { loadSecretBox } from '../host/process/secrets.ts';
import { onStopSignal } from '../host/process/signals.ts';
import { Metrics } from '../observability/metrics.ts';
import { type RunningServer, startServer } from '../server/server.ts';
import { driveReaders } from '../simulate/drive.ts';
import { Publisher } from '../simulate/publisher.ts';
import { Random } from '../simulate/random.ts';
import { deviceNames } from '../simulate/readers.ts';
import { Truth } from '../simulate/truth.ts';
import { type Balance, Books, balances, beginRun, tenantId } from './books.ts';
import { connectionOf, openBroker } from './broker.ts';
import { summary, welcome } from './lines.ts';
import { KillableProcessor } from './processor.ts';
import { Screen } from './screen.ts';

export interface DemoOptions {
  readonly headless?: boolean;
  readonly for?: number;
  readonly rate: number;
  readonly seed?: number;
  readonly doors: number;
  readonly baskets: number;
  readonly chaos?: boolean;
}

const trouble = { duplicates: 0.05, outOfOrder: 0.05, damaged: 0.003 };
const auditMs = 1000;
/** With --for, work in progress gets this long to finish; after Ctrl-C less. */
const drainMs = 30_000;
const leaveMs = 3000;

export async function runDemo(options: DemoOptions): Promise<{ summary: string; balanced: boolean }> {
  const began = performance.now();
  const inPlace = process.stdout.isTTY === true && !options.headless;
  const logger = createLogger({
    level: 'warn',
    ...(inPlace && { before: () => process.stdout.write('\r\x1b[K') }),
  });
  const config = loadConfig(apps);
  const components = componentsOf(apps);
  const stopping = new AbortController();
  let why = 'its time is over';
  onStopSignal((signal) => {
    why = `${signal === 'SIGINT' ? 'Ctrl-C' : signal}; once more ends it at once`;
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
    const { database } = runtime.tallyman;
    const metrics = new Metrics(runtime.tallyman);
    const api = opened(await startApi(config, runtime, metrics, logger), (it) => it.stop());
    await registerDoors(database, deviceNames(options.doors), tenantId);
    const run = await beginRun(database, options.baskets);
    const publisher = opened(
      await Publisher.connect(broker.url, { logger, mostInFlight: broker.mostInFlight }),
      (it) => it.close(),
    );
    const mqtt: MqttOptions = {
      ...connectionOf(broker.url),
      clientId: 'tallyman-demo',
      environmentId: 'demo',
      reconnectDelaySeconds: 0.5,
      maxReconnectDelaySeconds: 5,
      connectTimeoutSeconds: 20,
      // Above any backlog: Mosquitto 2.0.11 does not respect a smaller one.
      receiveMaximum: 20_000,
    };
    let killable: KillableProcessor | undefined;
    if (options.chaos) {
      killable = opened(new KillableProcessor({ databaseUrl: reached.url, mqtt }), (it) => it.stop());
      await killable.start();
    } else {
      const settings = mqttSettings(mqtt);
      const intake = opened(await startIntake({ tallyman: runtime.tallyman, settings, logger }), (it) =>
        it.stop(),
      );
      metrics.observe(intake.worker);
      const { mqtt: found } = intake.status();
      if (!found?.ready)
        throw new TallymanError('BROKER_UNREACHABLE', `the broker cannot be used: ${found?.reason}`);
    }

    const seed = options.seed ?? Date.now() % 2 ** 32;
    const { doors, rate, baskets, chaos = false } = options;
    const where = { database: reached.where, broker: broker.where, api: api.url, doors, rate, seed, chaos };
    print(welcome(where, run));
    const truth = new Truth();
    const books = new Books(database, run, truth);
    const screen = new Screen(inPlace, () => killable?.kills);
    const timer = options.for === undefined ? undefined : setTimeout(() => stopping.abort(), options.for);
    const { signal } = stopping;
    await Promise.all([
      driveReaders({
        ...trouble,
        ...{ seed, rate, baskets, devices: doors, firstBasket: run.firstBasket, publisher, truth, signal },
        onSend: (transmission, beganAt) => books.send(transmission, beganAt),
      }),
      watch(books, signal, (balance) => screen.show(balance), logger),
      killable?.torment(new Random(seed + 1), signal),
    ]);
    clearTimeout(timer);

    const signalled = why !== 'its time is over';
    if (signalled) screen.end(`stopping (${why})`);
    const limitMs = signalled ? leaveMs : drainMs;
    await publisher.flushed(limitMs);
    await drained(books, limitMs, (balance) => signalled || screen.show(balance));
    screen.end(undefined);
    const balance = await books.close(!signalled);
    return {
      summary: summary(balance, performance.now() - began, why.replace(/;.*/, ''), killable?.kills),
      balanced: balances(balance),
    };
  } finally {
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

/** Audits every second until the signal fires; less often if an audit takes long. */
async function watch(
  books: Books,
  signal: AbortSignal,
  tell: (balance: Balance) => void,
  logger: Logger,
): Promise<void> {
  for (let tookMs = 0; !signal.aborted; ) {
    await pause(Math.max(auditMs, 5 * tookMs), signal);
    const began = performance.now();
    try {
      if (!signal.aborted) tell(await books.audit());
    } catch (error) {
      logger.warn({ reason: messageOf(error) }, 'the books could not be read; trying again');
    }
    tookMs = performance.now() - began;
  }
}

async function drained(books: Books, limitMs: number, tell: (balance: Balance) => void): Promise<void> {
  for (const deadline = performance.now() + limitMs; books.isOpen && performance.now() < deadline; ) {
    tell(await books.audit());
    if (books.isOpen) await pause(100);
  }
}
