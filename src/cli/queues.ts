import { type Command, InvalidArgumentError } from 'commander';
import type { Queue } from '../engine/jobs/queues.ts';
import { given } from '../given.ts';
import { usage } from '../host/cli/exit.ts';
import { examples, group, type JsonOption, withJson } from '../host/cli/options.ts';
import { print, show } from '../host/cli/output/print.ts';
import { table } from '../host/cli/output/table.ts';
import { paintState, terminalWidth } from '../host/cli/output/terminal.ts';
import { relativeTime } from '../host/cli/output/time.ts';
import type { CommandFrame } from '../host/cli/session.ts';
import { pageJson, queueJson } from '../server/routes/json.ts';

/** Commander turns null into an empty string, so "none" stays a word until the options are read. */
type Limit = number | 'none';

interface LimitOptions {
  readonly maxRunning?: Limit;
  readonly rate?: Limit;
  readonly burst?: Limit;
}

export function addQueues(program: Command, frame: CommandFrame): void {
  const queues = group(program, 'queues', 'pause, resume and limit queues');

  withJson(queues.command('list'))
    .description('what waits and runs in each, and its limits')
    .addHelpText('after', examples(['queues list', 'queues list --json']))
    .action((options: JsonOption) =>
      frame.withTallyman(async ({ tallyman, now }) => {
        const items = await tallyman.queues.list();
        show(options.json, pageJson({ items, nextCursor: null }, queueJson), () => queuesTable(items, now));
      }),
    );

  queues
    .command('pause')
    .description('stop claims from it; running jobs continue. Also a queue that has no jobs yet')
    .argument('<name>', 'name of the queue')
    .addHelpText('after', examples(['queues pause carriers']))
    .action((name: string) =>
      frame.withTallyman(async ({ tallyman }) => {
        const wasThere = await tallyman.queues.pause(name);
        print(
          `queue "${name}" is paused${wasThere ? '' : '; it is new: check its name if it should not be'}`,
        );
      }),
    );

  queues
    .command('resume')
    .description('end a pause')
    .argument('<name>', 'name of the queue')
    .addHelpText('after', examples(['queues resume carriers']))
    .action((name: string) =>
      frame.withTallyman(async ({ tallyman }) => {
        await tallyman.queues.resume(name);
        print(`queue "${name}" goes on`);
      }),
    );

  queues
    .command('limit')
    .description('limits over the whole fleet; "none" takes one away')
    .argument('<name>', 'name of the queue; made if there is none yet')
    .option('--max-running <count>', 'jobs and lanes that run at once', wholeOrNone)
    .option('--rate <per-second>', 'starts a second', numberOrNone)
    .option(
      '--burst <count>',
      "starts at once after a quiet time (default: one second's worth)",
      numberOrNone,
    )
    .addHelpText(
      'after',
      examples(['queues limit carriers --max-running 4 --rate 20', 'queues limit carriers --rate none']),
    )
    .action((name: string, options: LimitOptions) => {
      const { maxRunning, rate, burst } = options;
      const limits = given({
        maxRunning: limitOf(maxRunning),
        ratePerSecond: limitOf(rate),
        rateBurst: limitOf(burst),
      });
      if (Object.keys(limits).length === 0) throw usage('name a limit: --max-running, --rate or --burst');
      return frame.withTallyman(async ({ tallyman, now }) => {
        await tallyman.queues.configure(name, limits);
        print(
          queuesTable(
            (await tallyman.queues.list()).filter((queue) => queue.name === name),
            now,
          ),
        );
      });
    });
}

const limitOf = (limit: Limit | undefined): number | null | undefined => (limit === 'none' ? null : limit);

function numberOrNone(text: string): Limit {
  if (text === 'none') return text;
  const number = Number(text);
  if (text.trim() === '' || !(number > 0) || !Number.isFinite(number))
    throw new InvalidArgumentError('Expected a number above zero, or "none".');
  return number;
}

function wholeOrNone(text: string): Limit {
  const number = numberOrNone(text);
  if (number !== 'none' && !(Number.isInteger(number) && number < 2 ** 31))
    throw new InvalidArgumentError('Expected a whole number above zero, or "none".');
  return number;
}

function queuesTable(queues: readonly Queue[], now: Date): string {
  if (queues.length === 0) return 'No queues yet: the first job of a queue makes it.';
  const state = (queue: Queue): string => (queue.paused ? 'paused' : 'open');
  return table<Queue>(
    [
      { title: 'QUEUE', value: (queue) => queue.name, shrinkTo: 8 },
      { title: 'STATE', value: state, paint: (text, queue) => paintState(text, state(queue)) },
      { title: 'READY', value: (queue) => queue.ready, right: true },
      { title: 'RUNNING', value: (queue) => queue.running, right: true },
      { title: 'LATER', value: (queue) => queue.waiting, right: true },
      { title: 'OLDEST', value: (q) => q.oldestReadyAt && relativeTime(q.oldestReadyAt, now), leaveOut: 2 },
      { title: 'LIMITS', value: limitsOf, leaveOut: 1 },
    ],
    queues,
    terminalWidth(),
  );
}

function limitsOf({ maxRunning, ratePerSecond, rateBurst }: Queue): string {
  return [
    maxRunning !== null && `${maxRunning} at once`,
    ratePerSecond !== null && `${ratePerSecond}/s`,
    rateBurst !== null && `burst ${rateBurst}`,
  ]
    .filter(Boolean)
    .join(', ');
}
