/** The demo of this app: dock doors that read baskets, and books of what they sent. */
import { messageOf, TallymanError } from '../../../engine/errors.ts';
import type { Logger } from '../../../engine/logger.ts';
import { pause } from '../../../engine/resilience/deadline.ts';
import { wholeNumber } from '../../../host/cli/options.ts';
import { print } from '../../../host/cli/output/print.ts';
import type { Demo, DemoHost, DemoResult } from '../../../host/demo.ts';
import { driveReaders } from '../../../simulate/drive.ts';
import { Publisher } from '../../../simulate/publisher.ts';
import { Random } from '../../../simulate/random.ts';
import { deviceNames } from '../../../simulate/readers.ts';
import { Truth } from '../../../simulate/truth.ts';
import { type MqttOptions, mqttSettings } from '../../iot/mqtt/index.ts';
import { readsTopic, registerDoors, startIntake } from '../intake/index.ts';
import { type Balance, Books, balances, beginRun, tenantId } from './books.ts';
import { connectionOf } from './connection.ts';
import { summary, welcome } from './lines.ts';
import { KillableProcessor } from './processor.ts';
import { Screen } from './screen.ts';

interface PlantOptions {
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

export const plantDemo: Demo<PlantOptions> = {
  description: 'Dock doors that read baskets',
  options: (command) =>
    void command
      .option('--chaos', 'kill and restart the processor all the time')
      .option('--rate <count>', 'reads a second', wholeNumber(1, 20_000), 100)
      .option('--doors <count>', 'dock doors', wholeNumber(1, 1000), 6)
      .option('--baskets <count>', 'baskets that pass them', wholeNumber(2, 100_000), 60)
      .option(
        '--seed <number>',
        'the same seed makes the same reads and the same trouble',
        wholeNumber(0, 2 ** 32 - 1),
      ),
  run: async (host, options) => {
    const closers: (() => Promise<void>)[] = [];
    try {
      return await run(host, options, (close) => void closers.unshift(close));
    } finally {
      for (const close of closers) await close();
    }
  },
};

async function run(
  host: DemoHost,
  options: PlantOptions,
  onEnd: (close: () => Promise<void>) => void,
): Promise<DemoResult> {
  const began = performance.now();
  const { logger, broker, signal } = host;
  const { database } = host.tallyman;
  const mqtt = mqttOptions(broker.url);
  await registerDoors(database, deviceNames(options.doors), tenantId);
  const inRun = await beginRun(database, options.baskets);
  const { mostInFlight } = broker;
  const publisher = await Publisher.connect(broker.url, {
    logger,
    ...(mostInFlight !== undefined && { mostInFlight }),
  });
  onEnd(() => publisher.close());
  const killable = options.chaos ? new KillableProcessor({ databaseUrl: host.databaseUrl, mqtt }) : undefined;
  if (killable) {
    onEnd(() => killable.stop());
    await killable.start();
  } else await process(host, mqtt, onEnd);

  const seed = options.seed ?? Date.now() % 2 ** 32;
  const { doors, rate, baskets, chaos = false } = options;
  print(welcome({ ...host.where, doors, rate, seed, chaos }, inRun));
  const truth = new Truth();
  const books = new Books(database, inRun, truth);
  const screen = new Screen(host.isTerminal, () => killable?.kills);
  host.begin();
  await Promise.all([
    driveReaders({
      ...trouble,
      ...{ seed, rate, baskets, devices: doors, firstBasket: inRun.firstBasket, publisher, truth, signal },
      onSend: (transmission, beganAt) => books.send(transmission, beganAt),
    }),
    watch(books, signal, (balance) => screen.show(balance), logger),
    killable?.torment(new Random(seed + 1), signal),
  ]);

  const stoppedBy = host.stoppedBy();
  if (stoppedBy !== undefined) screen.end(`stopping (${stoppedBy}; once more ends it at once)`);
  const limitMs = stoppedBy === undefined ? drainMs : leaveMs;
  await publisher.flushed(limitMs);
  await drained(books, limitMs, (balance) => {
    if (stoppedBy === undefined) screen.show(balance);
  });
  screen.end(undefined);
  const balance = await books.close(stoppedBy === undefined);
  return {
    summary: summary(balance, performance.now() - began, stoppedBy ?? 'its time is over', killable?.kills),
    balanced: balances(balance),
  };
}

const mqttOptions = (url: string): MqttOptions => ({
  ...connectionOf(url),
  clientId: 'tallyman-demo',
  environmentId: 'demo',
  subscribeTopics: [readsTopic],
  reconnectDelaySeconds: 0.5,
  maxReconnectDelaySeconds: 5,
  connectTimeoutSeconds: 20,
  // Above any backlog: Mosquitto 2.0.11 does not respect a smaller one.
  receiveMaximum: 20_000,
});

async function process(
  { tallyman, logger, observe }: DemoHost,
  mqtt: MqttOptions,
  onEnd: (close: () => Promise<void>) => void,
): Promise<void> {
  const intake = await startIntake({ tallyman, settings: mqttSettings(mqtt), logger });
  onEnd(() => intake.stop());
  observe(intake.worker);
  const { mqtt: found } = intake.status();
  if (!found?.ready)
    throw new TallymanError('BROKER_UNREACHABLE', `the broker cannot be used: ${found?.reason}`);
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
