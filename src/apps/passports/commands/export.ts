import { createHash } from 'node:crypto';
import type { Command } from 'commander';
import { TallymanError } from '../../../engine/errors.ts';
import { usage } from '../../../host/cli/exit.ts';
import { examples, oneOf } from '../../../host/cli/options.ts';
import { show } from '../../../host/cli/output/print.ts';
import type { CommandFrame } from '../../../host/cli/session.ts';
import type { TenantQueries } from '../../../host/timeline.ts';
import type { JsonObject, Reader } from '../compile/types.ts';
import type { LabelSize } from '../print/sizes.ts';
import type { PassportName } from '../public/link.ts';
import type { Format } from '../public/negotiate.ts';
import { type ExportFormat, exportFormatNames, exportFormats } from '../store/exports.ts';
import { readText, writeWhole } from './files.ts';
import { type TenantOption, type Tools, withPassports, withTenant } from './tools.ts';

const readers = ['public', 'legitimate_interest', 'authority', 'owner'] as const;
const labels = ['50x30', '70x40', '100x50', '100x150'] as const;

interface ExportOptions extends TenantOption {
  readonly format: ExportFormat;
  readonly reader: Reader;
  readonly output?: string;
  readonly passportVersion?: string;
  readonly supplement?: string;
  readonly lang: 'en' | 'de';
  readonly label?: LabelSize;
}

/** `tallyman passports export`: a passport as one file, for one reader. */
export function addExport(passports: Command, frame: CommandFrame): void {
  withTenant(passports.command('export'))
    .description('write a passport to a file: everything in a bundle, or one form of it')
    .argument('<passport>', 'its id, the serial number of the battery, or the link on its label')
    .option(
      '-f, --format <format>',
      exportFormatNames.join(', '),
      oneOf(exportFormatNames),
      'bundle' as ExportFormat,
    )
    .option(
      '-r, --reader <reader>',
      `what this reader may see: ${readers.join(', ')}`,
      oneOf(readers),
      'public' as Reader,
    )
    .option('-o, --output <file>', 'where to; "-" is stdout (default: passport-<serial number>.<ending>)')
    .option('--passport-version <id>', 'this version, which may have ended (default: the one that counts)')
    .option(
      '--supplement <file>',
      'for catenax: JSON with what the aspect needs and the passport does not have',
    )
    .option('--lang <language>', 'for html and pdf: en or de', oneOf(['en', 'de'] as const), 'en' as const)
    .option('--label <size>', `for pdf: one label of this size in mm: ${labels.join(', ')}`, oneOf(labels))
    .addHelpText(
      'after',
      examples([
        'passports export SP100-000001',
        'passports export SP100-000001 --format pdf --label 50x30 --lang de',
        'passports export SP100-000001 --format catenax --reader owner --supplement catenax.json',
      ]),
    )
    .action((name: string, options: ExportOptions) =>
      withPassports(frame, options, async (tools) => {
        const { content, fileName } = await exported(tools, name, options);
        const bytes = Buffer.from(content);
        if (options.output === '-') {
          process.stdout.write(bytes);
          return;
        }
        const file = options.output ?? fileName;
        await writeWhole(file, bytes);
        const sha256 = createHash('sha256').update(bytes).digest('hex');
        show(options.json, { file, bytes: bytes.length, sha256 }, () => {
          const advice = isVerifiable(options.format) ? ` Check it with: tallyman verify ${file}` : '';
          return `${file}: ${bytes.length} bytes, for ${options.reader}.${advice}`;
        });
      }),
    );
}

const isVerifiable = (format: ExportFormat): boolean => format === 'bundle' || format === 'json';

async function exported(
  { on, means }: Tools,
  name: string,
  options: ExportOptions,
): Promise<{ readonly content: string | Uint8Array; readonly fileName: string }> {
  const { PassportAnswers } = await import('../public/answers.ts');
  const { disclose } = await import('../page/disclosure.ts');
  const answers = new PassportAnswers(means);
  const supplement = options.supplement === undefined ? undefined : await jsonFile(options.supplement);
  return on.transaction(async (scope) => {
    const found = await answers.find(
      scope,
      await nameOf(scope, name),
      options.passportVersion === undefined ? { current: true } : { versionId: options.passportVersion },
    );
    const loaded = found && (await answers.load(scope, found, options.reader));
    if (!found || !loaded)
      throw new TallymanError('NOT_FOUND', `there is no passport ${name} that was ever active`);
    const { passport } = found;
    const fileName = `passport-${(passport.serial ?? passport.gtin).replace(/[^\w.-]/g, '_')}.${exportFormats[options.format][1]}`;
    const disclosed = disclose(loaded.source, options.reader);
    const pretty = (json: JsonObject): string => `${JSON.stringify(json, null, 2)}\n`;
    if (options.format === 'catenax') {
      const { catenaXPass } = await import('../export/catenax/aspect.ts');
      return { content: pretty(catenaXPass(disclosed, supplement)), fileName };
    }
    if (options.format === 'dpp') {
      const { dppDocument } = await import('../dpp/document.ts');
      return { content: pretty(dppDocument(disclosed, 'full')), fileName };
    }
    const format: Format = options.format;
    const asked = { reader: options.reader, format, language: options.lang, label: options.label };
    const content = await answers.render(scope, found, asked, await answers.tag(scope, found, asked));
    if (content === undefined) throw new TallymanError('NOT_FOUND', `there is no passport ${name}`);
    return { content, fileName };
  });
}

/** By its id or link, else by the serial number of exactly one battery. */
async function nameOf(on: TenantQueries, name: string): Promise<PassportName> {
  const { parseName } = await import('../public/link.ts');
  const { listPassports } = await import('../store/passports.ts');
  const parsed = parseName(name);
  if (parsed) return parsed;
  const { items } = await listPassports(on, { serial: name }, { limit: 2 });
  if (items.length > 1) throw usage(`several models have a battery ${name}: give the id of the passport`);
  if (!items[0]) throw new TallymanError('NOT_FOUND', `there is no battery with the serial number ${name}`);
  return { id: items[0].id };
}

async function jsonFile(file: string): Promise<JsonObject> {
  const text = await readText(file);
  try {
    const json: unknown = JSON.parse(text);
    if (typeof json === 'object' && json !== null && !Array.isArray(json)) return json as JsonObject;
  } catch {
    // Said below.
  }
  throw usage(`${file} is no JSON object`);
}
