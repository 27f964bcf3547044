import type { Command } from 'commander';
import { given } from '../../../given.ts';
import { usage } from '../../../host/cli/exit.ts';
import {
  collect,
  examples,
  type JsonOption,
  more,
  noCursor,
  type PageOptions,
  withJson,
  withPage,
} from '../../../host/cli/options.ts';
import { show } from '../../../host/cli/output/print.ts';
import { table } from '../../../host/cli/output/table.ts';
import { terminalWidth } from '../../../host/cli/output/terminal.ts';
import { count } from '../../../host/cli/output/text.ts';
import { relativeTime } from '../../../host/cli/output/time.ts';
import type { CommandFrame } from '../../../host/cli/session.ts';
import type { QuarantinedEntry } from '../store/store.ts';
import { chosenStream, factsGroup, nodeFrom, type StreamOptions, withStream } from './frame.ts';
import { factOffset } from './offset.ts';

interface RedriveOptions extends JsonOption, StreamOptions {
  readonly all?: boolean;
  readonly reason?: string;
  readonly as?: string;
}

/** `tallyman facts quarantine|redrive|drop`: what the other zone could not take. */
export function addQuarantine(program: Command, frame: CommandFrame): void {
  const withNode = nodeFrom(frame);
  const facts = factsGroup(program);
  withPage(withStream(facts.command('quarantine')))
    .description('facts that the receiving zone could not take, and why')
    .option('--open', 'those for which nothing was done yet')
    .addHelpText(
      'after',
      examples(['facts quarantine --to enterprise', 'facts quarantine --from plant-a --open --json']),
    )
    .action((options: PageOptions & StreamOptions & { readonly open?: boolean }) =>
      withNode(async ({ settings, store }, { now }) => {
        const stream = await chosenStream(settings, options);
        const { items, nextCursor } = await collect(options, async ({ limit, cursor }) => {
          const isOpen = options.open === true;
          const found = await store.quarantined(stream, { ...placeOf(cursor), limit: limit + 1, isOpen });
          const page = found.slice(0, limit);
          const last = found.length > limit ? page.at(-1) : undefined;
          return { items: page, nextCursor: last ? `${last.offset}:${last.epoch}` : null };
        });
        show(
          options.json,
          { items: items.map(entryJson), next_cursor: nextCursor },
          () => entriesTable(items, now) + more(nextCursor),
        );
      }),
    );

  withJson(withStream(facts.command('redrive')))
    .description('send a fact again that the other zone could not take, after the cause is gone')
    .argument('[offset]', 'of the fact', factOffset)
    .option('--all', 'all that are open')
    .option('--reason <reason>', 'with --all: those that were refused for this reason')
    .option('--as <id>', 'under this message id (default: one that is derived)')
    .addHelpText(
      'after',
      examples(['facts redrive 1042 --to enterprise', 'facts redrive --all --reason too_large']),
    )
    .action((which: number | undefined, options: RedriveOptions) =>
      withNode(async ({ settings, store, objects, admission }) => {
        const stream = await chosenStream(settings, { from: settings.zone, ...options });
        const { redrive, redriveAll } = await import('../redrive.ts');
        const on = { store, objects, admission, stream };
        if (options.all === true) {
          if (which !== undefined || options.as !== undefined)
            throw usage('--all takes neither an offset nor --as');
          const redriven = await redriveAll(on, given({ reason: options.reason }));
          return show(options.json, { redriven }, () => `${count(redriven, 'fact')} sent again.`);
        }
        if (which === undefined) throw usage('name the offset of the fact, or --all');
        const { offset: at, messageId } = await redrive(on, { offset: which }, given({ as: options.as }));
        show(
          options.json,
          { offset: at, message_id: messageId },
          () => `fact ${which} is sent again as fact ${at}, "${messageId}"`,
        );
      }),
    );

  withJson(withStream(facts.command('drop')))
    .description('tell the other zone that a fact it could not take will not come')
    .argument('<offset>', 'of the fact', factOffset)
    .requiredOption('--reason <text>', 'told along')
    .addHelpText('after', examples(['facts drop 1042 --to enterprise --reason "measured twice"']))
    .action((which: number, options: JsonOption & StreamOptions & { readonly reason: string }) =>
      withNode(async ({ settings, store, objects, admission }) => {
        const stream = await chosenStream(settings, { from: settings.zone, ...options });
        const { dropQuarantined } = await import('../redrive.ts');
        const on = { store, objects, admission, stream };
        const { offset: at } = await dropQuarantined(on, { offset: which }, options.reason);
        show(options.json, { offset: at }, () => `fact ${which} is dropped; fact ${at} says so`);
      }),
    );
}

/** Where a page begins. */
function placeOf(cursor: string | undefined): { readonly after: number; readonly afterEpoch?: string } {
  if (cursor === undefined) return { after: 0 };
  const [, after, afterEpoch] =
    /^(\d{1,15}):([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$/.exec(cursor) ?? [];
  if (after === undefined || afterEpoch === undefined) throw noCursor(cursor);
  return { after: Number(after), afterEpoch };
}

const entryJson = (entry: QuarantinedEntry) => ({
  from_zone: entry.from,
  to_zone: entry.to,
  epoch: entry.epoch,
  offset: entry.offset,
  message_id: entry.messageId,
  reason: entry.reason,
  message: entry.message,
  quarantined_at: entry.quarantinedAt,
  resolution: entry.resolution ? { how: entry.resolution.how, by: entry.resolution.by } : null,
});

function entriesTable(entries: readonly QuarantinedEntry[], now: Date): string {
  if (entries.length === 0) return 'Nothing is in quarantine.';
  return table<QuarantinedEntry>(
    [
      { title: 'OFFSET', value: (entry) => entry.offset, right: true },
      { title: 'MESSAGE', value: (entry) => entry.messageId, shrinkTo: 12 },
      { title: 'REASON', value: (entry) => entry.reason },
      {
        title: 'WHAT BECAME OF IT',
        value: ({ resolution }) => (resolution ? `${resolution.how} by ${resolution.by}` : 'open'),
      },
      { title: 'SINCE', value: (entry) => relativeTime(entry.quarantinedAt, now), leaveOut: 1 },
    ],
    entries,
    terminalWidth(),
  );
}
