import type { Command } from 'commander';
import { exitCodes } from '../../../host/cli/exit.ts';
import {
  collect,
  examples,
  group,
  more,
  oneOf,
  type PageOptions,
  withPage,
} from '../../../host/cli/options.ts';
import { complain, show } from '../../../host/cli/output/print.ts';
import { table } from '../../../host/cli/output/table.ts';
import { terminalWidth } from '../../../host/cli/output/terminal.ts';
import { relativeTime } from '../../../host/cli/output/time.ts';
import type { CommandFrame } from '../../../host/cli/session.ts';
import { type Reader, readerPoints } from '../compile/types.ts';
import {
  type ExportFormat,
  exportBytes,
  exportFormatNames,
  listExports,
  requireExport,
  type StoredExport,
} from '../store/exports.ts';
import { requestExport } from '../write/exports.ts';
import { writeWhole } from './files.ts';
import { requireUuid, type TenantOption, withPassports, withTenant } from './tools.ts';

interface RequestOptions extends TenantOption {
  readonly format: ExportFormat;
  readonly reader: Reader;
  readonly lang: 'en' | 'de';
}

/** `tallyman passports exports …`: exports that jobs make and that are kept. */
export function addExports(passports: Command, frame: CommandFrame): void {
  const exports = group(passports, 'exports', 'exported versions that are kept, each always the same bytes');
  const readers = Object.keys(readerPoints) as Reader[];

  withTenant(exports.command('request'))
    .description('export a version as one file and keep it; the same request again is the same export')
    .argument('<version>', 'the id of the version')
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
    .option('--lang <language>', 'for html and pdf: en or de', oneOf(['en', 'de'] as const), 'en' as const)
    .addHelpText(
      'after',
      examples([
        'passports exports request 7b0c6d4e-…',
        'passports exports request 7b0c6d4e-… -f pdf --lang de',
      ]),
    )
    .action((name: string, options: RequestOptions) =>
      withPassports(frame, options, async (tools) => {
        const { format, reader, lang: language } = options;
        const { id } = await tools.change((work) =>
          requestExport(work, requireUuid(name, 'version'), { format, reader, language }),
        );
        await tools.settle('exporting');
        const made = await requireExport(tools.on, id);
        const { exportJson } = await import('../routes/exports.ts');
        show(
          options.json,
          exportJson(made),
          () => `export ${id}: ${made.state}, ${made.sha256 ?? 'no bytes'}`,
        );
        if (made.state === 'READY') return;
        process.exitCode = exitCodes.failed;
        if (made.error) complain(`error: ${made.error.code}: ${made.error.message}`);
      }),
    );

  withPage(exports.command('list').option('-t, --tenant <id>', 'of this tenant', 'default'))
    .description('exports and how far they are')
    .addHelpText('after', examples(['passports exports list', 'passports exports list --json']))
    .action((options: PageOptions & TenantOption) =>
      withPassports(frame, options, async ({ on, now }) => {
        const found = await collect(options, (at) => listExports(on, {}, at));
        const { exportJson } = await import('../routes/exports.ts');
        const shown = { items: found.items.map(exportJson), next_cursor: found.nextCursor };
        show(options.json, shown, () => listTable(found.items, now) + more(found.nextCursor));
      }),
    );

  withTenant(exports.command('get'))
    .description('write the file of an export')
    .argument('<export>', 'its id')
    .option('-o, --output <file>', 'where to; "-" is stdout (default: passport-<serial number>.<ending>)')
    .addHelpText(
      'after',
      examples(['passports exports get 7b0c6d4e-…', 'passports exports get 7b0c6d4e-… -o -']),
    )
    .action((name: string, options: TenantOption & { readonly output?: string }) =>
      withPassports(frame, options, async ({ on }) => {
        const made = await requireExport(on, requireUuid(name, 'export'));
        const bytes = await exportBytes(on, made);
        if (options.output === '-') {
          process.stdout.write(bytes);
          return;
        }
        const { exportFileName } = await import('../routes/exports.ts');
        const file = options.output ?? exportFileName(made);
        await writeWhole(file, bytes);
        show(
          options.json,
          { file, bytes: bytes.length, sha256: made.sha256 },
          () => `${file}: ${bytes.length} bytes, for ${made.reader}, ${made.sha256}`,
        );
      }),
    );
}

function listTable(exports: readonly StoredExport[], now: Date): string {
  if (exports.length === 0) return 'No exports.';
  return table<StoredExport>(
    [
      { title: 'EXPORT', value: ({ id }) => id },
      { title: 'BATTERY', value: ({ serial }) => serial ?? '(the model)' },
      { title: 'FORMAT', value: ({ format }) => format },
      { title: 'READER', value: ({ reader }) => reader },
      { title: 'STATE', value: ({ state, error }) => (error ? `${state} (${error.code})` : state) },
      { title: 'BYTES', value: ({ size }) => size, right: true },
      { title: 'REQUESTED', value: ({ createdAt }) => relativeTime(createdAt, now), leaveOut: 1 },
    ],
    exports,
    terminalWidth(),
  );
}
