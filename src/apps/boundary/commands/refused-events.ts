import type { Command } from 'commander';
import { TallymanError } from '../../../engine/errors.ts';
import { given } from '../../../given.ts';
import { exitCodes, usage } from '../../../host/cli/exit.ts';
import {
  collect,
  examples,
  group,
  type JsonOption,
  more,
  noCursor,
  type PageOptions,
  withJson,
  withPage,
} from '../../../host/cli/options.ts';
import { complain, show } from '../../../host/cli/output/print.ts';
import { table } from '../../../host/cli/output/table.ts';
import { terminalWidth } from '../../../host/cli/output/terminal.ts';
import { count } from '../../../host/cli/output/text.ts';
import { relativeTime } from '../../../host/cli/output/time.ts';
import type { CommandFrame } from '../../../host/cli/session.ts';
import type { RefusedEvent, WhichEvents } from '../bridge/refused-events.ts';
import type { Settings } from '../settings.ts';
import { factsGroup, nodeFrom } from './frame.ts';

interface FilterOptions extends JsonOption {
  readonly to?: string;
  readonly reason?: string;
}

interface ChangeOptions extends FilterOptions {
  readonly all?: boolean;
}

const withFilter = (command: Command): Command =>
  command
    .option('--to <zone>', 'those that should have gone to this zone')
    .option('--reason <reason>', 'those that were refused for this reason, such as too_large');

/** `tallyman facts refused-events`: events that matched a rule but cannot become a fact. */
export function addRefusedEvents(program: Command, frame: CommandFrame): void {
  const withNode = nodeFrom(frame);
  const events = group(
    factsGroup(program),
    'refused-events',
    'events that matched a rule but cannot become a fact',
  );

  withFilter(withPage(events.command('list')))
    .description('which events, and why; the longest refused first')
    .addHelpText(
      'after',
      examples(['facts refused-events list', 'facts refused-events list --to enterprise --json']),
    )
    .action((options: FilterOptions & PageOptions) =>
      withNode(async ({ settings, database }, { now }) => {
        const { refusedPage } = await import('../bridge/refused-events.ts');
        const which = filterOf(settings, options);
        const { items, nextCursor } = await collect(options, async (at) => {
          const page = await refusedPage(database, settings.tenantId, which, at);
          if (!page) throw noCursor(at.cursor ?? '');
          return page;
        });
        show(
          options.json,
          { items: items.map(entryJson), next_cursor: nextCursor },
          () => entriesTable(items, now) + more(nextCursor),
        );
      }),
    );

  withFilter(withJson(events.command('retry')))
    .description('make facts of them by the present rules, after the rule was changed')
    .argument('[event]', 'id of the event')
    .option('--all', 'all that --to and --reason leave')
    .addHelpText(
      'after',
      examples([
        'facts refused-events retry evt_1042',
        'facts refused-events retry --all --reason invalid_field',
      ]),
    )
    .action((event: string | undefined, options: ChangeOptions) =>
      withNode(async (node) => {
        const which = chosenBy(node.settings, event, options);
        const { retryRefused } = await import('../bridge/refused-events.ts');
        const { appended, refused } = await retryRefused(node, which);
        if (event !== undefined && appended + refused.length === 0) throw unknown(event);
        show(
          options.json,
          { appended, refused: refused.map(entryJson) },
          () =>
            `${count(appended, 'fact')} appended${refused.length > 0 ? `, ${count(refused.length, 'event')} refused again` : ''}`,
        );
        for (const each of refused) complain(`${each.event}: ${each.reason}: ${each.message}`);
        if (refused.length > 0) process.exitCode = exitCodes.failed;
      }),
    );

  withFilter(withJson(events.command('drop')))
    .description('give up on them: they will never be facts')
    .argument('[event]', 'id of the event')
    .option('--all', 'all that --to and --reason leave')
    .addHelpText(
      'after',
      examples([
        'facts refused-events drop evt_1042',
        'facts refused-events drop --all --to enterprise --reason too_large',
      ]),
    )
    .action((event: string | undefined, options: ChangeOptions) =>
      withNode(async ({ settings, database }) => {
        const which = chosenBy(settings, event, options);
        const { dropRefused } = await import('../bridge/refused-events.ts');
        const dropped = await dropRefused(database, settings.tenantId, which);
        if (event !== undefined && dropped === 0) throw unknown(event);
        show(options.json, { dropped }, () => `${count(dropped, 'event')} dropped`);
      }),
    );
}

/** A zone that no rule names any more may still have some. */
const filterOf = ({ zones }: Settings, { to, reason }: FilterOptions): WhichEvents =>
  given({ to: to === undefined ? undefined : zones.resolve(to, '--to'), reason });

function chosenBy(settings: Settings, event: string | undefined, options: ChangeOptions): WhichEvents {
  if ((event === undefined) === (options.all !== true)) throw usage('name the id of one event, or --all');
  return { ...filterOf(settings, options), ...given({ event }) };
}

const unknown = (event: string): TallymanError =>
  new TallymanError('NOT_FOUND', `no refused event has the id "${event}"`);

const entryJson = (entry: RefusedEvent) => ({
  event: entry.event,
  type: entry.type,
  to_zone: entry.to,
  predicate: entry.predicate,
  reason: entry.reason,
  message: entry.message,
  refused_at: entry.refusedAt.toISOString(),
});

function entriesTable(entries: readonly RefusedEvent[], now: Date): string {
  if (entries.length === 0) return 'No event was refused.';
  return table<RefusedEvent>(
    [
      { title: 'EVENT', value: ({ event }) => event },
      { title: 'TYPE', value: ({ type }) => type, shrinkTo: 12, leaveOut: 2 },
      { title: 'TO', value: ({ to }) => to },
      { title: 'PREDICATE', value: ({ predicate }) => predicate, leaveOut: 1 },
      { title: 'REASON', value: ({ reason, message }) => `${reason}: ${message}`, shrinkTo: 20 },
      { title: 'SINCE', value: ({ refusedAt }) => relativeTime(refusedAt, now), leaveOut: 3 },
    ],
    entries,
    terminalWidth(),
  );
}
