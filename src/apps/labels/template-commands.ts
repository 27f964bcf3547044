import { readFile, writeFile } from 'node:fs/promises';
import type { Command } from 'commander';
import { messageOf, TallymanError } from '../../engine/errors.ts';
import {
  collect,
  examples,
  group,
  type JsonOption,
  more,
  type PageOptions,
  withJson,
  withPage,
} from '../../host/cli/options.ts';
import { show } from '../../host/cli/output/print.ts';
import { table } from '../../host/cli/output/table.ts';
import { terminalWidth } from '../../host/cli/output/terminal.ts';
import { relativeTime } from '../../host/cli/output/time.ts';
import type { CommandFrame } from '../../host/cli/session.ts';
import {
  type BuiltInTemplate,
  type LabelTemplate,
  listBuiltIns,
  listTemplates,
  putTemplate,
  requireSvg,
} from './index.ts';

export interface TenantOption {
  readonly tenant: string;
}

export const withTenant = (command: Command): Command =>
  command.option('-t, --tenant <id>', 'of this tenant', 'default');

interface ExportOptions extends JsonOption, TenantOption {
  readonly output?: string;
}

/** `tallyman labels templates …` */
export function addTemplates(labels: Command, { withTallyman }: CommandFrame): void {
  const templates = group(
    labels,
    'templates',
    'designs of labels: your own, and those that come with Tallyman',
  );

  withTenant(withPage(templates.command('list')))
    .description('your own, newest first')
    .option('--built-in', 'instead: those that come with Tallyman')
    .addHelpText('after', examples(['labels templates list', 'labels templates list --built-in']))
    .action((options: PageOptions & TenantOption & { readonly builtIn?: boolean }) => {
      if (options.builtIn) {
        const items = listBuiltIns();
        show(options.json, { items }, () => builtInTable(items));
        return;
      }
      return withTallyman(async ({ tallyman: { database }, now }) => {
        const found = await collect(options, (at) => listTemplates(database, options.tenant, at));
        show(options.json, found, () => ownTable(found.items, now) + more(found.nextCursor));
      });
    });

  withTenant(withJson(templates.command('export')))
    .description('the SVG of a template, to look at it or to make your own of it')
    .argument('<name>', 'one of your own, or built-in-<width>x<height>')
    .option('-o, --output <file>', 'where to write it (default: stdout)')
    .addHelpText(
      'after',
      examples(['labels templates export built-in-296x160 -o price.svg', 'labels templates export price']),
    )
    .action((name: string, options: ExportOptions) =>
      withTallyman(async ({ tallyman: { database } }) => {
        const svg = await requireSvg(database, options.tenant, name);
        if (options.output === undefined) return show(options.json, { name, svg }, () => svg.trimEnd());
        await writeFile(options.output, svg);
        const { output: file } = options;
        show(options.json, { name, file }, () => file);
      }),
    );

  withTenant(withJson(templates.command('copy')))
    .description('make a template, or its next version, of another one')
    .argument('<from>', 'one of your own, or built-in-<width>x<height>')
    .argument('<to>', 'the name of the copy')
    .addHelpText('after', examples(['labels templates copy built-in-296x160 price']))
    .action((from: string, to: string, options: JsonOption & TenantOption) =>
      withTallyman(async ({ tallyman: { database } }) => {
        const { tenant: tenantId } = options;
        const made = await database.transaction(async (tx) =>
          putTemplate({ tx, tenantId }, to, await requireSvg(tx, tenantId, from)),
        );
        show(options.json, made, () => put(made));
      }),
    );

  withTenant(withJson(templates.command('put')))
    .description('make a template of a file, or its next version; labels that show it get new images')
    .argument('<name>', 'its name')
    .argument('<file>', 'SVG')
    .addHelpText('after', examples(['labels templates put price price.svg']))
    .action((name: string, file: string, options: JsonOption & TenantOption) =>
      withTallyman(async ({ tallyman: { database } }) => {
        const svg = await readFile(file, 'utf8').catch((error: unknown) => {
          throw new TallymanError('BAD_OPTION', `${file} cannot be read: ${messageOf(error)}`, {
            cause: error,
          });
        });
        const { tenant: tenantId } = options;
        const made = await database.transaction((tx) => putTemplate({ tx, tenantId }, name, svg));
        show(options.json, made, () => put(made));
      }),
    );
}

const put = ({ name, version }: LabelTemplate): string => `${name}, version ${version}`;

function ownTable(templates: readonly LabelTemplate[], now: Date): string {
  if (templates.length === 0)
    return 'No templates of your own: labels show the built-in ones (labels templates list --built-in).';
  return table<LabelTemplate>(
    [
      { title: 'NAME', value: ({ name }) => name, shrinkTo: 12 },
      { title: 'VERSION', value: ({ version }) => String(version) },
      { title: 'PAGES', value: ({ pages }) => String(pages) },
      { title: 'CHANGED', value: ({ changedAt }) => relativeTime(changedAt, now), leaveOut: 1 },
    ],
    templates,
    terminalWidth(),
  );
}

const builtInTable = (templates: readonly BuiltInTemplate[]): string =>
  table<BuiltInTemplate>(
    [
      { title: 'NAME', value: ({ name }) => name },
      { title: 'SIZE', value: ({ width, height }) => `${width} × ${height}` },
      { title: 'PALETTES', value: ({ palettes }) => palettes.join(', ') },
      { title: 'NEEDS', value: ({ placeholders }) => placeholders.join(', '), leaveOut: 1 },
    ],
    templates,
    terminalWidth(),
  );
