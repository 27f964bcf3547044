import type { Command } from 'commander';
import { given } from '../../../given.ts';
import { usage } from '../../../host/cli/exit.ts';
import { examples, type JsonOption, withJson } from '../../../host/cli/options.ts';
import { show } from '../../../host/cli/output/print.ts';
import { Progress } from '../../../host/cli/output/terminal.ts';
import { count } from '../../../host/cli/output/text.ts';
import type { CommandFrame } from '../../../host/cli/session.ts';
import type { BundleManifest } from '../bundles/format.ts';
import type { NodeParts } from '../node.ts';
import { chosenStream, factsGroup, nodeFrom, type StreamOptions, withStream } from './frame.ts';
import { offset } from './offset.ts';

interface ExportOptions extends JsonOption, StreamOptions {
  readonly after?: number;
  readonly upTo?: number;
}

/** `tallyman facts export-bundle|import-bundle`: over an air gap, in a file. */
export function addBundles(program: Command, frame: CommandFrame): void {
  const withNode = nodeFrom(frame);
  const facts = factsGroup(program);
  withJson(withStream(facts.command('export-bundle')))
    .description(
      'facts and objects for the other zone in a signed file; of a stream that comes in, its receipts',
    )
    .argument('<file>', 'a new file')
    .option('--after <offset>', 'what comes behind it (default: what the other zone has confirmed)', offset)
    .option('--up-to <offset>', 'up to it (default: the last fact)', offset)
    .addHelpText(
      'after',
      `${examples([
        'facts export-bundle --to enterprise monday.bundle',
        'facts import-bundle monday.bundle',
        'facts export-bundle --from plant-a monday.receipts',
        'facts import-bundle monday.receipts',
      ])}

Carry the file over, import it there, and carry the receipts back: only they
confirm that the facts have arrived.`,
    )
    .action((file: string, options: ExportOptions) =>
      withNode(async (node) => {
        const stream = await chosenStream(node.settings, options);
        const key = await receiptKey(node);
        const { store, objects } = node;
        const { after, upTo } = options;
        if (stream.buffer === 'forward' && upTo !== undefined)
          throw usage('receipts are exported up to the last one: leave --up-to out');
        const manifest =
          stream.buffer === 'store'
            ? await (await import('../bundles/export.ts')).exportBundle(
                { store, objects, stream, key },
                file,
                given({ after, upTo }),
              )
            : await (await import('../bundles/receipts.ts')).exportReceipts(
                { store, stream, key },
                file,
                given({ after }),
              );
        show(options.json, manifest ? manifestJson(manifest) : null, () =>
          manifest
            ? `${file}: ${manifest.kind} of ${manifest.from} → ${manifest.to}, offsets ${manifest.firstOffset} to ${manifest.lastOffset}.`
            : 'There is nothing to carry over; no file was written.',
        );
      }),
    );

  withJson(facts.command('import-bundle'))
    .description(
      'take over a file of another zone: facts, or the receipts of what was sent; twice changes nothing',
    )
    .argument('<file>', 'as `facts export-bundle` wrote it')
    .addHelpText(
      'after',
      examples(['facts import-bundle monday.bundle', 'facts import-bundle monday.receipts']),
    )
    .action((file: string, options: JsonOption) =>
      withNode(async (node) => {
        const { peekBundle } = await import('../bundles/walk.ts');
        const { kind } = await peekBundle(file);
        await (kind === 'facts' ? importFacts(node, file, options) : importReceipts(node, file, options));
      }),
    );
}

async function importFacts(node: NodeParts, file: string, options: JsonOption): Promise<void> {
  const [{ importBundle }, { signReceipt }, { keyFinder }] = await Promise.all([
    import('../bundles/import.ts'),
    import('../domain/receipt.ts'),
    import('../settings.ts'),
  ]);
  const { settings, store, objects } = node;
  const key = await receiptKey(node);
  const progress = new Progress('importing');
  const { manifest, taken, quarantined, frontier } = await importBundle(
    {
      store,
      objects,
      zone: settings.zone,
      tenantId: settings.tenantId,
      keyOf: keyFinder(settings, key),
      sign: (receipt) => signReceipt(receipt, key),
      onProgress: ({ offset: reached }) => progress.show(reached, 0),
    },
    file,
  ).finally(() => progress.end());
  const answer = { ...manifestJson(manifest), taken, quarantined, frontier: frontier?.offset ?? 0 };
  show(options.json, answer, () =>
    [
      taken === 0
        ? 'Everything in it was here already.'
        : `${count(taken, 'fact')} of ${manifest.from} taken over, up to offset ${frontier?.offset}.`,
      ...(quarantined > 0 ? [`${quarantined} of them could not be taken: see \`facts quarantine\`.`] : []),
    ].join('\n'),
  );
}

async function importReceipts(node: NodeParts, file: string, options: JsonOption): Promise<void> {
  const [{ importReceipts: take }, { keyFinder }] = await Promise.all([
    import('../bundles/receipts.ts'),
    import('../settings.ts'),
  ]);
  const { settings, store } = node;
  const { manifest, receipts, confirmedUpTo } = await take(
    {
      store,
      zone: settings.zone,
      tenantId: settings.tenantId,
      keyOf: keyFinder(settings, await receiptKey(node)),
      instance: `node of ${settings.zone}`,
    },
    file,
  );
  show(
    options.json,
    { ...manifestJson(manifest), receipts, confirmed_up_to: confirmedUpTo },
    () =>
      `${count(receipts, 'receipt')} of ${manifest.to}: everything up to offset ${confirmedUpTo} has arrived there.`,
  );
}

const receiptKey = async ({ settings }: NodeParts) =>
  (await import('../settings.ts')).loadReceiptKey(settings.receiptKeyFile);

const manifestJson = ({ kind, from, to, epoch, firstOffset, lastOffset, sha256 }: BundleManifest) => ({
  kind,
  from_zone: from,
  to_zone: to,
  epoch,
  first_offset: firstOffset,
  last_offset: lastOffset,
  sha256,
});
