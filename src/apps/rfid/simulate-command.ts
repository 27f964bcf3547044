import type { Command } from 'commander';
import { TallymanError } from '../../engine/errors.ts';
import { durationMs } from '../../host/cli/duration.ts';
import { examples, group, type JsonOption, share, wholeNumber, withJson } from '../../host/cli/options.ts';
import { print, show } from '../../host/cli/output/print.ts';
import { facts } from '../../host/cli/output/table.ts';
import { Progress } from '../../host/cli/output/terminal.ts';
import { type CommandFrame, commandLogger } from '../../host/cli/session.ts';
import { onStopSignal } from '../../host/process/signals.ts';
import { driveReaders } from '../../simulate/drive.ts';
import { Publisher } from '../../simulate/publisher.ts';
import { deviceNames, readerDefaults } from '../../simulate/readers.ts';
import { mostBaskets } from '../../simulate/tags.ts';
import { Truth } from '../../simulate/truth.ts';
import { registerDoors } from './intake/index.ts';

interface ReadersOptions extends JsonOption {
  readonly broker?: string;
  readonly devices: number;
  readonly baskets: number;
  readonly firstBasket: number;
  readonly rate: number;
  readonly duplicates: number;
  readonly outOfOrder: number;
  readonly damaged: number;
  readonly seed: number;
  readonly count?: number;
  readonly for?: number;
  readonly register?: boolean;
}

const defaultBroker = 'mqtt://127.0.0.1:1883';
/** How long the simulator waits for the last acknowledgements before it reports them missing. */
const flushMs = 15_000;

export function addSimulateReaders(program: Command, frame: CommandFrame): void {
  const d = readerDefaults;
  const simulate = group(program, 'simulate', 'simulated devices, for tests and for trying things out');
  withJson(simulate.command('readers'))
    .description(
      'dock doors with RFID readers that publish what Zebra FX readers publish, and know the truth',
    )
    .option('--broker <url>', `mqtt:// or mqtts:// address (default: MQTT_URL, else ${defaultBroker})`)
    .option('--devices <count>', 'readers, each at a door of its own', wholeNumber(1, 1000), d.devices)
    .option('--baskets <count>', 'baskets that pass them', wholeNumber(2, 1_000_000), d.baskets)
    .option(
      '--first-basket <serial>',
      'number of the first basket: other numbers, other tags',
      wholeNumber(1, mostBaskets - 1_000_000),
      d.firstBasket,
    )
    .option('--rate <count>', 'reads a second, of all readers together', wholeNumber(1, 100_000), d.rate)
    .option('--duplicates <share>', 'messages that are sent twice, from 0 to 1', share, d.duplicates)
    .option('--out-of-order <share>', 'messages that come after younger ones', share, d.outOfOrder)
    .option('--damaged <share>', 'messages that are broken off in the middle', share, d.damaged)
    .option('--seed <number>', 'the same seed makes the same messages', wholeNumber(0, 2 ** 32 - 1), 1)
    .option('--count <reads>', 'stop after so many different reads', wholeNumber(1, 1_000_000_000))
    .option('--for <time>', 'stop after this time (30s, 5m)', durationMs)
    .option('--register', 'first register the readers in the database, each at its own location')
    .addHelpText(
      'after',
      `${examples([
        'simulate readers --register --for 1m',
        'simulate readers --broker mqtt://broker.plant:1883 --devices 20 --rate 500 --seed 7',
        'simulate readers --count 20000 --rate 5000 --duplicates 0.1 --json',
      ])}

Publishes on zebra/fx/dock-1/reads and so on, at QoS 2, until --count, --for or
Ctrl-C. Then it tells what must stand in the database of somebody who began with
none of these baskets and lost nothing: so many different reads, baskets and
movements. Exit code 1 where the broker did not acknowledge everything.`,
    )
    .action((options: ReadersOptions) => runReaders(options, frame));

  simulate
    .command('read')
    .description('publish one read, as a Zebra FX reader would, to try out a broker and its subscriptions')
    .argument('<device>', 'the reader, such as dock-7')
    .argument('<epc>', 'the tag: 24 hexadecimal digits')
    .option('--broker <url>', `mqtt:// or mqtts:// address (default: MQTT_URL, else ${defaultBroker})`)
    .option('--topic <topic>', 'where to (default: zebra/fx/{device}/reads)')
    .addHelpText('after', examples(['simulate read dock-7 3314257BF40C0E4000000190']))
    .action(runRead);
}

async function runRead(
  device: string,
  epc: string,
  { broker, topic = `zebra/fx/${device}/reads` }: { readonly broker?: string; readonly topic?: string },
): Promise<void> {
  const publisher = await Publisher.connect(broker ?? (process.env.MQTT_URL || defaultBroker), {
    logger: commandLogger(),
  });
  try {
    const timestamp = new Date().toISOString();
    const read = { type: 'SIMPLE', timestamp, data: { idHex: epc, antenna: 1, format: 'epc' } };
    await publisher.send(topic, JSON.stringify(read));
    if (!(await publisher.flushed(flushMs)))
      throw new TallymanError('BROKER_UNREACHABLE', 'the broker did not acknowledge the read');
    print(`${epc} was read by ${device} at ${timestamp}.`);
  } finally {
    await publisher.close();
  }
}

async function runReaders(options: ReadersOptions, { withTallyman }: CommandFrame): Promise<void> {
  const { seed, devices, baskets, firstBasket, rate, duplicates, outOfOrder, damaged } = options;
  if (options.register)
    await withTallyman(({ tallyman }) => registerDoors(tallyman.database, deviceNames(devices)));
  const url = options.broker ?? (process.env.MQTT_URL || defaultBroker);
  const publisher = await Publisher.connect(url, { logger: commandLogger() });
  const stopping = new AbortController();
  onStopSignal(() => stopping.abort());
  const timer = options.for === undefined ? undefined : setTimeout(() => stopping.abort(), options.for);
  const progress = new Progress('sent');
  const truth = new Truth();
  try {
    await driveReaders({
      ...{ seed, devices, baskets, firstBasket, rate, duplicates, outOfOrder, damaged, publisher, truth },
      ...(options.count !== undefined && { count: options.count }),
      signal: stopping.signal,
      onSend: () => {
        progress.show(truth.figures.reads);
        return undefined;
      },
    });
    await publisher.flushed(flushMs);
  } finally {
    clearTimeout(timer);
    progress.end();
    await publisher.close();
  }
  const { figures } = truth;
  const { acknowledged } = publisher;
  const unacknowledged = figures.messages - acknowledged;
  show(options.json, { seed, ...figures, acknowledged, unacknowledged }, () =>
    [
      facts([
        ['messages', figures.messages.toLocaleString('en')],
        ['acknowledged', acknowledged.toLocaleString('en')],
        ['reads', figures.reads.toLocaleString('en')],
        ['different', figures.distinctReads.toLocaleString('en')],
        ['damaged messages', figures.damaged.toLocaleString('en')],
      ]),
      '',
      `To be found: ${figures.distinctReads.toLocaleString('en')} reads, ${figures.baskets.toLocaleString('en')} baskets, ` +
        `${figures.movements.toLocaleString('en')} movements.`,
    ].join('\n'),
  );
  // The first signal stops the simulation; the second ends the process at once.
  process.exitCode = unacknowledged > 0 ? 1 : 0;
}
