import type { Command } from 'commander';
import { durationMs } from '../../../host/cli/duration.ts';
import { usage } from '../../../host/cli/exit.ts';
import { examples, type JsonOption, withJson } from '../../../host/cli/options.ts';
import { show } from '../../../host/cli/output/print.ts';
import { count } from '../../../host/cli/output/text.ts';
import type { CommandFrame } from '../../../host/cli/session.ts';
import { factsGroup, nodeFrom, otherZone } from './frame.ts';
import { factOffset } from './offset.ts';

interface SendAgainOptions extends JsonOption {
  readonly to?: string;
  readonly since?: number;
}

/** `tallyman facts send-again`: in one-way mode, what a data diode has lost. */
export function addSendAgain(program: Command, frame: CommandFrame): void {
  const withNode = nodeFrom(frame);
  withJson(factsGroup(program).command('send-again'))
    .description('one-way mode: write facts into the outbox again that the diode has lost')
    .argument('[first]', 'from this offset on', factOffset)
    .argument('[last]', 'up to this one', factOffset)
    .option('--to <zone>', 'of the stream to this zone (default: the other zone, if there is one)')
    .option('--since <duration>', 'instead of offsets: what was appended in the last 2h', durationMs)
    .addHelpText(
      'after',
      examples(['facts send-again 41 60 --to enterprise', 'facts send-again --since 2h --to enterprise']),
    )
    .action((first: number | undefined, last: number | undefined, options: SendAgainOptions) =>
      withNode(async (node, { now }) => {
        const { settings, store, objects } = node;
        const [{ streamBetween }, { outboxOptions }, { sendAgain }, { loadReceiptKey }] = await Promise.all([
          import('../node.ts'),
          import('../oneway/carry.ts'),
          import('../oneway/outbox.ts'),
          import('../settings.ts'),
        ]);
        const stream = streamBetween(settings, settings.zone, options.to ?? otherZone(settings, '--to'));
        const { outbox } = settings.peers.find(({ zone }) => zone === stream.to) ?? {};
        if (outbox === undefined)
          throw usage(
            `boundary.peers.${stream.to}.outbox is not set: facts to zone "${stream.to}" do not leave as files`,
          );
        const receiptKey = await loadReceiptKey(settings.receiptKeyFile);
        const written = await sendAgain(
          outboxOptions({ store, objects, receiptKey }, stream, outbox),
          whichFacts(first, last, options, now),
        );
        const files = written.map(({ path, manifest: { firstOffset, lastOffset } }) => ({
          path,
          ...{ first_offset: firstOffset, last_offset: lastOffset },
        }));
        show(options.json, { items: files, next_cursor: null }, () =>
          files.length === 0
            ? 'Nothing of this was sent yet, or it is no longer kept; no file was written.'
            : [
                `${count(files.length, 'file')} written:`,
                ...files.map((each) => `  ${each.path}: offsets ${each.first_offset} to ${each.last_offset}`),
              ].join('\n'),
        );
      }),
    );
}

function whichFacts(
  first: number | undefined,
  last: number | undefined,
  { since }: SendAgainOptions,
  now: Date,
): { readonly from: number; readonly to: number } | { readonly since: Date } {
  if (since !== undefined) {
    if (first !== undefined) throw usage('name offsets or --since, not both');
    return { since: new Date(now.getTime() - since) };
  }
  if (first === undefined) throw usage('name the first and the last offset, or --since');
  if (last !== undefined && last < first)
    throw usage(`the last offset (${last}) lies before the first (${first})`);
  return { from: first, to: last ?? first };
}
