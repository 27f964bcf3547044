import { createReadStream } from 'node:fs';
import { stat, writeFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { messageOf, TallymanError } from '../../engine/errors.ts';
import { given } from '../../given.ts';
import { exitCodes, usage } from '../../host/cli/exit.ts';
import {
  collect,
  examples,
  group,
  type JsonOption,
  more,
  oneOf,
  type PageOptions,
  wholeNumber,
  withJson,
  withPage,
} from '../../host/cli/options.ts';
import { complain, show } from '../../host/cli/output/print.ts';
import { facts, table } from '../../host/cli/output/table.ts';
import { Progress, paintState, terminalWidth } from '../../host/cli/output/terminal.ts';
import { count } from '../../host/cli/output/text.ts';
import { fullTime, relativeTime } from '../../host/cli/output/time.ts';
import type { CommandFrame, Session } from '../../host/cli/session.ts';
import {
  type ImportReport,
  importProducts,
  type Label,
  type LabelPage,
  listLabels,
  normaliseMac,
  type PageState,
  pageStates,
  previewLabel,
  previewSheets,
  requireLabel,
  resync,
} from './index.ts';
import { addTemplates, type TenantOption, withTenant } from './template-commands.ts';

interface ListOptions extends PageOptions, TenantOption {
  readonly store?: string;
  readonly state?: PageState;
  readonly sku?: string;
}

interface PreviewOptions extends JsonOption, TenantOption {
  readonly page: number;
  readonly output?: string;
  readonly sheet?: boolean;
}

interface ResyncOptions extends JsonOption, TenantOption {
  readonly store?: string;
}

interface ImportCommandOptions extends JsonOption, TenantOption {
  readonly store: string;
  readonly dryRun?: boolean;
}

export function addLabels(program: Command, frame: CommandFrame): void {
  const { withTallyman } = frame;
  const labels = group(program, 'labels', 'shelf labels: what they should show, and what they do');
  addTemplates(labels, frame);

  withTenant(withPage(labels.command('list')))
    .description('labels, newest first')
    .option('--store <code>', 'of this store')
    .option('-s, --state <state>', `with a page that is ${pageStates.join(', ')}`, oneOf(pageStates))
    .option('--sku <sku>', 'that show this product')
    .addHelpText('after', examples(['labels list --state failed', 'labels list --store 0042 --json']))
    .action((options: ListOptions) =>
      withTallyman(async ({ tallyman: { database }, now }) => {
        const { store, state, sku } = options;
        const found = await collect(options, (at) =>
          listLabels(database, options.tenant, given({ store, state, sku }), at),
        );
        const { labelJson } = await import('./routes/labels.ts');
        const shown = { items: found.items.map(labelJson), next_cursor: found.nextCursor };
        show(options.json, shown, () => labelsTable(found.items, now) + more(found.nextCursor));
      }),
    );

  withTenant(withJson(labels.command('show')))
    .description('one label: its pages, what each should show, and how far that has come')
    .argument('<mac>', 'its MAC, however written')
    .addHelpText('after', examples(['labels show 00:15:9D:A0:10:2B']))
    .action((mac: string, options: JsonOption & TenantOption) =>
      withTallyman(async ({ tallyman: { database }, now }) => {
        const label = await requireLabel(database, options.tenant, mac);
        const { labelWithPagesJson } = await import('./routes/labels.ts');
        show(options.json, labelWithPagesJson(label), () => labelPage(label, now));
      }),
    );

  withTenant(withJson(labels.command('preview')))
    .description('what a label should show, as a PNG')
    .argument('[mac]', 'its MAC, however written')
    .option('--page <number>', 'which page', wholeNumber(1, 16), 1)
    .option('-o, --output <file>', 'where to write it (default: <MAC>-<page>.png)')
    .option('--sheet', 'instead: the built-in templates in every size and palette, on A4 sheets at 300 dpi')
    .addHelpText(
      'after',
      examples([
        'labels preview 00159DA0102B',
        'labels preview 00159DA0102B -o tag.png',
        'labels preview --sheet -o sheet.png',
      ]),
    )
    .action((mac: string | undefined, options: PreviewOptions) => {
      if ((mac === undefined) === !options.sheet) throw usage('name a label by its MAC, or say --sheet');
      return mac === undefined ? sheets(options) : withTallyman((session) => preview(session, mac, options));
    });

  withTenant(withJson(labels.command('resync')))
    .description('push the images of labels again, also those that gateways already have')
    .argument('[mac...]', 'their MACs, however written')
    .option('--store <code>', 'all labels of this store instead')
    .addHelpText('after', examples(['labels resync 00159DA0102B', 'labels resync --store 0042']))
    .action((macs: string[], options: ResyncOptions) =>
      withTallyman((session) => pushAgain(session, macs, options)),
    );

  withTenant(withJson(labels.command('import')))
    .description('take in products from a CSV file; labels that show them get new images')
    .argument('<file>', 'the file, or - for stdin')
    .requiredOption('--store <code>', 'the store that sells them')
    .option('--dry-run', 'say what would be changed or refused, and change nothing')
    .addHelpText(
      'after',
      `${examples(['labels import products.csv --store 0042', 'labels import products.csv --store 0042 --dry-run'])}

The first line names the columns: sku, name, price; every other column is an
attribute. Write prices as 1.99. Each transaction imports 500 lines; if one of
them is bad, none of the 500 is written. Bad lines are listed by number.`,
    )
    .action((file: string, options: ImportCommandOptions) =>
      withTallyman((session) => takeIn(session, file, options)),
    );
}

async function preview(
  { tallyman: { database } }: Session,
  mac: string,
  { page, output, tenant, json }: PreviewOptions,
): Promise<void> {
  const { png, hash, panel } = await previewLabel(database, tenant, mac, page);
  const file = output ?? `${normaliseMac(mac)}-${page}.png`;
  await writeFile(file, png);
  show(json, { file, hash, ...panel }, () => `${file}: ${panel.width} × ${panel.height}, ${panel.palette}`);
}

async function sheets({ output = 'labels.png', json }: PreviewOptions): Promise<void> {
  const files: string[] = [];
  for (const [at, png] of (await previewSheets()).entries()) {
    const file = output.replace(/(\.png)?$/i, `-${at + 1}.png`);
    await writeFile(file, png);
    files.push(file);
  }
  show(json, { files }, () => files.join('\n'));
}

async function pushAgain(
  { tallyman: { database } }: Session,
  macs: readonly string[],
  { store, tenant: tenantId, json }: ResyncOptions,
): Promise<void> {
  if ((store === undefined) === (macs.length === 0))
    throw usage('name labels by their MACs, or a store with --store');
  const labels = await database.transaction((tx) =>
    resync({ tx, tenantId }, store === undefined ? { macs } : { store }),
  );
  show(json, { labels }, () => `${count(labels, 'label')} will be pushed to again.`);
}

async function takeIn(
  { tallyman: { database } }: Session,
  file: string,
  options: ImportCommandOptions,
): Promise<void> {
  const { store, tenant: tenantId, dryRun = false, json } = options;
  const total = file === '-' ? undefined : await sizeOf(file);
  const input = file === '-' ? process.stdin : createReadStream(file);
  const progress = new Progress(options.dryRun ? 'looking at' : 'taking in');
  let bytes = 0;
  const read = (async function* () {
    for await (const piece of input as AsyncIterable<Buffer>) {
      bytes += piece.length;
      yield piece;
    }
  })();
  const report = await importProducts(database, read, {
    store,
    tenantId,
    dryRun,
    onProgress: (lines) => (total === undefined ? progress.show(lines) : progress.show(bytes, total)),
  }).finally(() => progress.end());
  show(json, report, () => outcome(report, dryRun));
  if (report.bad.length === 0) return;
  if (!json) for (const { line, problem } of report.bad.slice(0, 100)) complain(`line ${line}: ${problem}`);
  process.exitCode = exitCodes.failed;
}

async function sizeOf(file: string): Promise<number> {
  try {
    return (await stat(file)).size;
  } catch (error) {
    throw new TallymanError('BAD_OPTION', `${file} cannot be read: ${messageOf(error)}`, { cause: error });
  }
}

function outcome(
  { lines, made, changed, unchanged, labels, bad, left }: ImportReport,
  dryRun: boolean,
): string {
  const taken = `${count(lines, 'line')}: ${made} new, ${changed} changed, ${unchanged} as they were; a new image for ${count(labels, 'label')}.`;
  return [
    taken,
    ...(bad.length > 0
      ? [`${count(bad.length, 'bad line')}; ${count(left, 'good one')} beside them left out.`]
      : []),
    ...(dryRun ? ['Nothing was changed.'] : []),
  ].join('\n');
}

function labelsTable(labels: readonly Label[], now: Date): string {
  if (labels.length === 0) return 'No labels.';
  return table<Label>(
    [
      { title: 'MAC', value: ({ mac }) => mac },
      { title: 'STORE', value: ({ store }) => store, shrinkTo: 8 },
      { title: 'TYPE', value: ({ type }) => type, shrinkTo: 8 },
      {
        title: 'STATE',
        value: ({ state }) => state ?? 'unassigned',
        paint: (text, { state }) => paintState(text, colourOf(state)),
      },
      { title: 'BATTERY', value: ({ battery }) => battery, leaveOut: 2 },
      { title: 'SEEN', value: ({ seenAt }) => seenAt && relativeTime(seenAt, now), leaveOut: 1 },
    ],
    labels,
    terminalWidth(),
  );
}

/** Uses the colours of job states for label states with a similar meaning. */
const colourOf = (state: PageState | null): string =>
  ({ waiting: 'waiting', processing: 'held', shown: 'ok', timeout: 'warn', failed: 'fail' })[
    state ?? 'waiting'
  ];

function labelPage(label: Label & { readonly pages: readonly LabelPage[] }, now: Date): string {
  const time = (at: Date | null): string | null => at && fullTime(at, now);
  const head = facts([
    ['label', label.mac],
    ['store', label.store],
    ['type', label.type],
    ['battery', label.battery],
    ['last seen', time(label.seenAt)],
  ]);
  const pages = label.pages.map((page) =>
    facts([
      ['page', page.page],
      ['shows', page.sku === null ? 'nothing (cleared)' : `${page.sku} through ${page.template}`],
      ['state', page.state],
      ['wanted', time(page.wantedAt)],
      ['task', page.wantedJob],
      ['accepted', time(page.acceptedAt)],
      ['image', page.acceptedHash],
      ['shown', time(page.shownAt)],
      ['error', page.error],
    ]),
  );
  return [head, ...(pages.length > 0 ? pages : ['Nothing is assigned to it.'])].join('\n\n');
}
