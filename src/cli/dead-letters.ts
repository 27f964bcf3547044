import type { Command } from 'commander';
import type { DeadLetter, DeadLetterFilter, DeadLetters } from '../engine/deadletters/dead-letters.ts';
import { TallymanError } from '../engine/errors.ts';
import { given } from '../given.ts';
import { forEachId } from '../host/cli/each.ts';
import { exitCodes, usage } from '../host/cli/exit.ts';
import {
  collect,
  examples,
  group,
  type JsonOption,
  more,
  type PageOptions,
  withJson,
  withPage,
} from '../host/cli/options.ts';
import { complain, show } from '../host/cli/output/print.ts';
import { facts, table } from '../host/cli/output/table.ts';
import { confirm, Progress, terminalWidth } from '../host/cli/output/terminal.ts';
import { count } from '../host/cli/output/text.ts';
import { fullTime, relativeTime } from '../host/cli/output/time.ts';
import type { CommandFrame } from '../host/cli/session.ts';
import { deadLetterJson, pageJson } from '../server/routes/json.ts';
import { errorSection, payloadSection } from './jobs.ts';

interface FilterOptions {
  readonly queue?: string;
  readonly kind?: string;
  readonly lane?: string;
  readonly tenant?: string;
  readonly errorCode?: string;
  readonly search?: string;
}

interface BulkOptions extends FilterOptions, JsonOption {
  readonly all?: boolean;
  readonly yes?: boolean;
  readonly toHead?: boolean;
}

const withFilter = (command: Command): Command =>
  command
    .option('-q, --queue <name>', 'of this queue')
    .option('-k, --kind <name>', 'of this kind')
    .option('-l, --lane <key>', 'of this lane')
    .option('-t, --tenant <id>', 'of this tenant')
    .option('--error-code <code>', 'whose last error has this code')
    .option('--search <text>', 'whose last error contains this text');

const withBulk = (command: Command): Command =>
  withFilter(withJson(command))
    .argument('[id...]', 'ids of dead letters')
    .option('--all', 'all of them, or all that the filters match, instead of ids')
    .option('-y, --yes', 'do not ask before --all');

const filterOf = ({
  queue,
  kind,
  lane,
  tenant: tenantId,
  errorCode,
  search,
}: FilterOptions): DeadLetterFilter => given({ queue, kind, lane, tenantId, errorCode, search });

export function addDeadLetters(program: Command, frame: CommandFrame): void {
  const letters = group(program, 'dead-letters', 'work that used up its attempts: show, redrive, discard');

  withFilter(withPage(letters.command('list')))
    .description('dead letters, newest first')
    .addHelpText(
      'after',
      examples(['dead-letters list --kind carrier.book', 'dead-letters list --search timeout --json']),
    )
    .action((options: PageOptions & FilterOptions) =>
      frame.withTallyman(async ({ tallyman, now }) => {
        const page = await collect(options, (at) => tallyman.deadLetters.list(filterOf(options), at));
        show(
          options.json,
          pageJson(page, deadLetterJson),
          () => lettersTable(page.items, now) + more(page.nextCursor),
        );
      }),
    );

  withJson(letters.command('show'))
    .description('everything about one: payload, attempts, last error')
    .argument('<id>', 'id of the dead letter')
    .addHelpText('after', examples(['dead-letters show 4711']))
    .action((id: string, options: JsonOption) =>
      frame.withTallyman(async ({ tallyman, now }) => {
        const letter = await tallyman.deadLetters.get(id);
        if (!letter) throw new TallymanError('NOT_FOUND', `there is no dead letter ${id}`);
        show(options.json, deadLetterJson(letter), () => letterPage(letter, now));
      }),
    );

  withBulk(letters.command('redrive'))
    .description('run again, with attempts reset to zero, under the same id')
    .option('--to-head', 'in a lane: to its head instead of its end')
    .addHelpText(
      'after',
      examples(['dead-letters redrive 4711 4712', 'dead-letters redrive --all --kind carrier.book --yes']),
    )
    .action((ids: string[], options: BulkOptions) =>
      frame.withTallyman(async ({ tallyman: { deadLetters } }) => {
        const redrive = { toHead: options.toHead === true };
        if (!bulk(ids, options, 'redrive'))
          return forEachId(
            ids,
            { ...options, done: 'redriven', say: (id) => `dead letter ${id} was redriven` },
            (id) => deadLetters.redrive(id, redrive),
          );
        await overAll(deadLetters, options, { verb: 'Redrive', done: 'redriven' }, (filter, onProgress) =>
          deadLetters.redriveAll(filter, { ...redrive, onProgress }),
        );
      }),
    );

  withBulk(letters.command('discard'))
    .description('delete for good')
    .addHelpText(
      'after',
      examples(['dead-letters discard 4711', 'dead-letters discard --all --error-code GONE']),
    )
    .action((ids: string[], options: BulkOptions) =>
      frame.withTallyman(async ({ tallyman: { deadLetters } }) => {
        if (!bulk(ids, options, 'discard'))
          return forEachId(
            ids,
            { ...options, done: 'discarded', say: (id) => `dead letter ${id} is discarded` },
            async (id) => {
              if ((await deadLetters.discard([id])) === 0)
                throw new TallymanError('NOT_FOUND', `there is no dead letter ${id}`);
            },
          );
        await overAll(deadLetters, options, { verb: 'Discard', done: 'discarded' }, (filter, onProgress) =>
          deadLetters.discardAll(filter, { onProgress }),
        );
      }),
    );
}

/** Requires ids or a filter, never both and never neither: nobody must discard dead letters by accident. */
function bulk(ids: readonly string[], options: BulkOptions, verb: string): boolean {
  const filtered = Object.keys(filterOf(options)).length > 0;
  if (ids.length > 0 && (options.all || filtered)) throw usage(`give ids, or --all with filters, not both`);
  if (ids.length === 0 && !options.all)
    throw usage(filtered ? `add --all to ${verb} everything that matches` : `name ids to ${verb}, or --all`);
  return options.all === true;
}

async function overAll(
  letters: DeadLetters,
  options: BulkOptions,
  words: { readonly verb: string; readonly done: string },
  work: (filter: DeadLetterFilter, onProgress: (done: number) => void) => Promise<number>,
): Promise<void> {
  const filter = filterOf(options);
  const first = await letters.list(filter, { limit: 200 });
  const some =
    first.nextCursor === null ? count(first.items.length, 'dead letter') : 'more than 200 dead letters';
  if (first.items.length > 0 && !options.yes) {
    if (!process.stdin.isTTY) throw usage(`this would touch ${some}; add --yes to do it without being asked`);
    if (!(await confirm(`${words.verb} ${some}?`))) {
      complain('Nothing was done.');
      process.exitCode = exitCodes.failed;
      return;
    }
  }
  const progress = new Progress(words.done);
  const done = await work(filter, (n) => progress.show(n)).finally(() => progress.end());
  show(options.json, { [words.done]: done }, () => `${count(done, 'dead letter')} ${words.done}.`);
}

function lettersTable(letters: readonly DeadLetter[], now: Date): string {
  if (letters.length === 0) return 'No dead letters.';
  return table<DeadLetter>(
    [
      { title: 'ID', value: (letter) => letter.id, right: true },
      { title: 'KIND', value: (letter) => letter.kind, shrinkTo: 10 },
      { title: 'QUEUE', value: (letter) => letter.queue, shrinkTo: 6, leaveOut: 3 },
      { title: 'LANE', value: (letter) => letter.lane, shrinkTo: 6, leaveOut: 2 },
      {
        title: 'TRIES',
        value: (letter) => `${letter.attempts}/${letter.maxAttempts}`,
        right: true,
        leaveOut: 4,
      },
      { title: 'REDRIVES', value: (letter) => letter.redrives || '', right: true, leaveOut: 5 },
      { title: 'FAILED', value: (letter) => relativeTime(letter.lastFailedAt, now), leaveOut: 1 },
      {
        title: 'LAST ERROR',
        value: ({ lastError }) => (lastError ? `${lastError.code}: ${lastError.message}` : ''),
        shrinkTo: 24,
      },
    ],
    letters,
    terminalWidth(),
  );
}

function letterPage(letter: DeadLetter, now: Date): string {
  const head = facts([
    ['dead letter', letter.id],
    ['source', letter.source],
    ['kind', letter.kind],
    ['queue', letter.queue],
    ['lane', letter.lane],
    ['tenant', letter.tenantId],
    ['entity', letter.entityType === 'job' ? null : `${letter.entityType} ${letter.entityId}`],
    ['attempts', `${letter.attempts} of ${letter.maxAttempts}`],
    ['redrives', letter.redrives],
    ['correlation id', letter.correlationId],
    ['first failed', fullTime(letter.firstFailedAt, now)],
    ['last failed', fullTime(letter.lastFailedAt, now)],
  ]);
  return [head, payloadSection(letter.payload), errorSection(letter.lastError)].filter(Boolean).join('\n\n');
}
