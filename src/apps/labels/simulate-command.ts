import { type Command, InvalidArgumentError } from 'commander';
import { durationMs } from '../../host/cli/duration.ts';
import { examples, group, type JsonOption, share, wholeNumber, withJson } from '../../host/cli/options.ts';
import { complain, show } from '../../host/cli/output/print.ts';
import { facts } from '../../host/cli/output/table.ts';
import { onStopSignal } from '../../host/process/signals.ts';
import { evenFaults, type SimulatorCounts, startLabelSimulator } from './gateways/simulator/index.ts';

interface Range {
  readonly minMs: number;
  readonly maxMs: number;
}

interface LabelsOptions extends JsonOption {
  readonly host: string;
  readonly port: number;
  readonly seed: number;
  readonly latency?: Range;
  readonly shownAfter?: Range;
  readonly faults: number;
  readonly labelTimeouts: number;
  readonly for?: number;
}

const nothing: Range = { minMs: 0, maxMs: 0 };
const lineEveryMs = 500;

export function addSimulateLabels(program: Command): void {
  const simulate = group(program, 'simulate', 'simulated devices, for tests and for trying things out');
  withJson(simulate.command('labels'))
    .description('a gateway of shelf labels: answers as SoluM AIMS and as OpenEPaperLink do')
    .option('--host <address>', 'where it listens', '127.0.0.1')
    .option('--port <number>', 'its port, 0 for any free one', wholeNumber(0, 65_535), 8790)
    .option('--latency <time>', 'how long an answer takes: 20ms, or 5ms-80ms (default: none)', range)
    .option('--shown-after <time>', 'from accepted to shown: 2s, or 1s-10s (default: at once)', range)
    .option(
      '--faults <share>',
      'calls that go wrong, from 0 to 1: 429, 500, 503, no answer, resets',
      share,
      0,
    )
    .option('--label-timeouts <share>', 'images that a label never gets', share, 0)
    .option(
      '--seed <number>',
      'with the same seed, the nth image of a label has the same outcome',
      wholeNumber(0, 2 ** 32 - 1),
      1,
    )
    .option('--for <time>', 'stop after this time (30s, 5m)', durationMs)
    .addHelpText(
      'after',
      `${examples([
        'simulate labels',
        'simulate labels --port 8790 --latency 5ms-80ms --faults 0.05 --shown-after 1s-5s --seed 7',
      ])}

Set a store's gateway to its address, kind "aims" (any company, store, user and
password) or "openepaperlink". While it runs:
  GET   /simulator                  counts
  GET   /simulator/labels/{mac}     every image a label was sent, in order
  GET   /simulator/labels/{mac}/image   what it was sent last
  PATCH /simulator/labels/{mac}     {"fault":"500"} makes it fail, {"fault":null} ends that
  PATCH /simulator/settings         {"latency":{"minMs":0,"maxMs":50},"faults":{"429":0.1}}
It has no access control. Stop it with Ctrl-C; it then prints its counts.`,
    )
    .action(runLabels);
}

async function runLabels(options: LabelsOptions): Promise<void> {
  const { host, port, seed, labelTimeouts, latency = nothing, shownAfter = nothing } = options;
  const simulator = await startLabelSimulator({
    ...{ host, port, seed, latency, shownAfter, labelTimeouts },
    faults: evenFaults(options.faults),
  });
  complain(`Labels are simulated at ${simulator.url}`);
  const { simulation } = simulator;
  const line = process.stderr.isTTY
    ? setInterval(() => process.stderr.write(`\r${inOneLine(simulation.counts())}\x1b[K`), lineEveryMs)
    : undefined;
  const stopped = new Promise<void>((stop) => {
    onStopSignal(() => stop());
    if (options.for !== undefined) setTimeout(stop, options.for);
  });
  await stopped;
  clearInterval(line);
  if (line) process.stderr.write('\r\x1b[K');
  await simulator.close();
  const counts = simulation.counts();
  show(options.json, { url: simulator.url, seed, ...counts }, () => facts(factsOf(counts)));
  // The first signal stops the simulator; the second ends the process at once.
  process.exitCode = 0;
}

const inOneLine = (counts: SimulatorCounts): string =>
  factsOf(counts)
    .map(([name, value]) => `${name} ${value}`)
    .join(' · ');

const factsOf = ({
  labels,
  calls,
  accepted,
  shown,
  processing,
  timedOut,
  faults,
}: SimulatorCounts): [string, string][] => [
  ['labels', labels.toLocaleString('en')],
  ['calls', calls.toLocaleString('en')],
  ['accepted', accepted.toLocaleString('en')],
  ['shown', shown.toLocaleString('en')],
  ['processing', processing.toLocaleString('en')],
  ['timed out', timedOut.toLocaleString('en')],
  [
    'faults',
    Object.values(faults)
      .reduce((sum, count) => sum + count, 0)
      .toLocaleString('en'),
  ],
];

/** `20ms`, or `5ms-80ms`. */
function range(text: string): Range {
  const [from = '', to = from, ...more] = text.split('-');
  const [minMs, maxMs] = [durationMs(from), durationMs(to)];
  if (more.length > 0 || minMs > maxMs)
    throw new InvalidArgumentError('Expected a time such as 20ms, or two such as 5ms-80ms.');
  return { minMs, maxMs };
}
