import { type Command, InvalidArgumentError } from 'commander';
import { messageOf, TallymanError } from '../../../engine/errors.ts';
import { durationMs } from '../../../host/cli/duration.ts';
import { examples, type JsonOption, wholeNumber, withJson } from '../../../host/cli/options.ts';
import { jsonText, print, printed, show } from '../../../host/cli/output/print.ts';
import { count } from '../../../host/cli/output/text.ts';
import type { CommandFrame } from '../../../host/cli/session.ts';
import { onStopSignal } from '../../../host/process/signals.ts';
import type { BufferRole, Position, StoredEntry } from '../store/store.ts';
import { factJson, factLine, factsTable } from './fact-output.ts';
import { chosenStream, factsGroup, nodeFrom, type StreamOptions, withStream } from './frame.ts';

interface FetchOptions extends JsonOption, StreamOptions {
  readonly consumer: string;
  readonly instance?: string;
  readonly limit: number;
  readonly wait?: number;
  readonly start?: Position;
  readonly confirm?: boolean;
}

interface TailOptions extends JsonOption, StreamOptions {
  readonly after?: number;
  readonly limit?: number;
}

export function addFactReads(program: Command, frame: CommandFrame): void {
  const facts = factsGroup(program);
  const withNode = nodeFrom(frame);

  withStream(withJson(facts.command('fetch')))
    .description('facts after the cursor of a consumer; the same ones again until they are confirmed')
    .requiredOption('--consumer <name>', 'whose cursor; made if it is not there')
    .option('--instance <id>', 'tells processes of one consumer apart')
    .option('-n, --limit <count>', 'how many at most', wholeNumber(1, 1000), 100)
    .option('--wait <time>', 'wait for facts for up to this long (5s, 1m)', durationMs)
    .option('--start <position>', 'where a new consumer begins: first, end, an offset, or a time', position)
    .option('--confirm', 'confirm what is printed: the next fetch goes on behind it')
    .addHelpText(
      'after',
      examples([
        'facts fetch --consumer erp',
        'facts fetch --from plant-a --consumer erp --limit 10 --confirm --json',
      ]),
    )
    .action((options: FetchOptions) =>
      withNode(async ({ settings, store }, { now }) => {
        const { confirmReceipt, fetchFacts, fetchLimits } = await import('../consume.ts');
        const stream = await chosenStream(settings, options);
        const { consumer, instance = '', limit, wait = 0, start } = options;
        const { entries, cursor, backlog } = await fetchFacts(store, stream, {
          consumer,
          instance,
          limit,
          waitMs: Math.min(wait, fetchLimits.waitMs),
          ...(start && { start }),
        });
        const last = entries.at(-1)?.offset;
        const confirmed = options.confirm ? last : undefined;
        const left = backlog - entries.length;
        const answer = { items: entries.map(factJson), cursor: confirmed ?? cursor, backlog: left };
        const text = (): string =>
          [
            ...(entries.length > 0 ? [factsTable(entries, now), ''] : []),
            `${count(entries.length, 'fact')}; the cursor of "${consumer}" is at ${answer.cursor}, ${count(left, 'fact')} behind these`,
          ].join('\n');
        if (confirmed === undefined) return show(options.json, answer, text);
        // What is confirmed is not fetched again: it must have left before.
        await printed(options.json ? jsonText(answer) : text()).catch((error: unknown) => {
          throw notPrinted(error);
        });
        await confirmReceipt(store, stream, { consumer, instance, offset: confirmed });
      }),
    );

  withJson(facts.command('find'))
    .description('a fact by its message id: whether it is here, and where')
    .argument('<message-id>', 'as its producer gave it')
    .option('--from <zone>', 'that it comes from (default: looks for it from every zone)')
    .addHelpText('after', examples(['facts find wo-1/done', 'facts find wo-1/done --from plant-a --json']))
    .action((messageId: string, options: JsonOption & { from?: string }) =>
      withNode(async ({ settings, store }, { now }) => {
        const { zone, zones, tenantId } = settings;
        const sources = options.from === undefined ? zones.all : [zones.resolve(options.from, '--from')];
        for (const from of sources) {
          const buffer: BufferRole = from === zone ? 'store' : 'forward';
          const found = await store.find(tenantId, buffer, from, messageId);
          if (!found) continue;
          const { stream, offset, entry } = found;
          const where = { from_zone: stream.from, to_zone: stream.to, offset };
          show(options.json, { ...where, trimmed: !entry, fact: entry ? factJson(entry) : null }, () =>
            entry
              ? `${factsTable([entry], now)}\n\nfrom ${stream.from} to ${stream.to}`
              : `offset ${offset} from ${stream.from} to ${stream.to}; the fact itself was trimmed`,
          );
          return;
        }
        throw new TallymanError(
          'NOT_FOUND',
          `there is no fact with the message id "${messageId}" on this node`,
        );
      }),
    );

  withStream(withJson(facts.command('tail')))
    .description('facts as they come, until Ctrl-C; moves no cursor. With --json a document in each line')
    .option(
      '--after <offset>',
      'from behind this offset on (default: the last 10)',
      wholeNumber(0, Number.MAX_SAFE_INTEGER),
    )
    .option('-n, --limit <count>', 'end after so many', wholeNumber(1, 1_000_000))
    .addHelpText('after', examples(['facts tail', 'facts tail --to enterprise --after 0 --limit 100 --json']))
    .action((options: TailOptions) =>
      withNode(async ({ settings, store }) => {
        const stopping = new AbortController();
        onStopSignal(() => stopping.abort());
        const stream = await chosenStream(settings, options);
        const state = await store.state(stream);
        let after = options.after ?? Math.max(0, (state?.last ?? 0) - 10);
        let left = options.limit ?? Number.POSITIVE_INFINITY;
        while (left > 0 && !stopping.signal.aborted) {
          const entries: StoredEntry[] = await store
            .read(stream, {
              after,
              limit: Math.min(left, 100),
              maxBytes: 1024 * 1024,
              waitMs: 5000,
              signal: stopping.signal,
            })
            .catch((error: unknown) => {
              if (stopping.signal.aborted) return [];
              throw error;
            });
          for (const entry of entries)
            print(options.json ? JSON.stringify(factJson(entry)) : factLine(entry));
          after = entries.at(-1)?.offset ?? after;
          left -= entries.length;
        }
      }),
    );
}

const notPrinted = (error: unknown): TallymanError =>
  new TallymanError(
    'OUTPUT_FAILED',
    `the facts could not be written to standard output (${messageOf(error)}); nothing was confirmed: the next fetch has them again`,
    { cause: error },
  );

export function position(text: string): Position {
  if (text === 'first') return { after: 0 };
  if (text === 'end') return 'end';
  if (/^\d+$/.test(text)) return { after: Number(text) };
  const at = new Date(text);
  if (Number.isNaN(at.getTime()))
    throw new InvalidArgumentError(
      'Expected first, end, an offset to go on behind, or a time such as 2026-03-06T08:00:00Z.',
    );
  return { at };
}
