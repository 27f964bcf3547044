import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import type { Command } from 'commander';
import { exitCodes, usage } from '../../../host/cli/exit.ts';
import { examples, oneOf } from '../../../host/cli/options.ts';
import { complain, show } from '../../../host/cli/output/print.ts';
import { count, printable } from '../../../host/cli/output/text.ts';
import type { CommandFrame } from '../../../host/cli/session.ts';
import { parseItems } from '../compile/documents/parse.ts';
import {
  type DocumentFormat,
  type DocumentKind,
  type DocumentProblem,
  documentKinds,
} from '../compile/types.ts';
import { passportError } from '../errors.ts';
import {
  type DocumentVersion,
  requireDocumentVersion,
  requireSnapshot,
  type StoredSnapshot,
} from '../store/index.ts';
import { uploadDocument } from '../write/documents.ts';
import { addItems } from '../write/passports.ts';
import { rebuildSnapshot, requestSnapshot } from '../write/snapshots.ts';
import { requireUuid, type TenantOption, type Tools, withPassports, withTenant } from './tools.ts';

interface ImportOptions extends TenantOption {
  readonly product: string;
  readonly kind: DocumentKind | 'batteries';
  readonly wait: boolean;
}

/** `tallyman passports import` and `build`: from files to a sealed snapshot. */
export function addDocuments(passports: Command, frame: CommandFrame): void {
  const kinds = [...documentKinds, 'batteries'] as const;
  withTenant(passports.command('import'))
    .description('take in documents of a model, or a list of its batteries, from CSV or JSON files')
    .argument('<file...>', 'the files; the ending says whether one is CSV or JSON')
    .requiredOption('--product <id>', 'the model')
    .requiredOption('--kind <kind>', kinds.join(', '), oneOf(kinds))
    .option('--no-wait', 'leave reading the documents to the workers')
    .addHelpText(
      'after',
      examples([
        'passports import bom.csv --product pack-100 --kind bill_of_materials',
        'passports import serials.csv --product pack-100 --kind batteries',
      ]),
    )
    .action((files: string[], options: ImportOptions) =>
      withPassports(frame, options, (tools) =>
        options.kind === 'batteries'
          ? importBatteries(tools, files, options)
          : importDocuments(tools, files, options.kind, options),
      ),
    );

  withTenant(passports.command('build'))
    .description('seal the facts of all validated documents of a model into a snapshot')
    .argument('<product>', 'the model')
    .addHelpText('after', examples(['passports build pack-100', 'passports build pack-100 --json']))
    .action((product: string, options: TenantOption) =>
      withPassports(frame, options, async (tools) => {
        const id = await tools.change((work) => requestSnapshot(work, product));
        await tools.settle('building');
        const snapshot = await requireSnapshot(tools.on, id);
        await tellSnapshot(snapshot, options.json);
      }),
    );

  withTenant(passports.command('rebuild'))
    .description('build a snapshot again that has failed, once its documents are corrected')
    .argument('<snapshot>', 'its id')
    .addHelpText('after', examples(['passports rebuild 7b0c6d4e-…']))
    .action((id: string, options: TenantOption) =>
      withPassports(frame, options, async (tools) => {
        await tools.change((work) => rebuildSnapshot(work, requireUuid(id, 'snapshot')));
        await tools.settle('building');
        await tellSnapshot(await requireSnapshot(tools.on, id), options.json);
      }),
    );
}

/** Throws why it is not sealed. */
async function tellSnapshot(snapshot: StoredSnapshot, json: boolean | undefined): Promise<void> {
  const { id, state, error, factCount, hash } = snapshot;
  if (state !== 'SEALED')
    throw passportError(
      'SNAPSHOT_NOT_READY',
      error
        ? `${error.code}: ${error.message}. Then: tallyman passports rebuild ${id}`
        : `snapshot ${id} is not sealed: see tallyman jobs list --queue passports`,
    );
  const { snapshotJson } = await import('../routes/snapshots.ts');
  show(
    json,
    snapshotJson(snapshot),
    () => `snapshot ${id}: ${count(factCount ?? 0, 'fact')}, sealed\n${hash}`,
  );
}

async function importDocuments(
  { change, settle, on }: Tools,
  files: readonly string[],
  kind: DocumentKind,
  { product: productId, wait, json }: ImportOptions,
): Promise<void> {
  const read = await Promise.all(files.map(async (file) => ({ file, bytes: await bytesOf(file) })));
  const uploaded = await change(async (work) => {
    const all = [];
    for (const { file, bytes } of read)
      all.push(
        await uploadDocument(work, { productId, kind, name: basename(file), format: formatOf(file), bytes }),
      );
    return all;
  });
  if (wait) await settle('reading');
  const versions: DocumentVersion[] = [];
  for (const { versionId } of uploaded) versions.push(await requireDocumentVersion(on, versionId));
  const { documentJson } = await import('../routes/documents.ts');
  show(json, { items: versions.map(documentJson) }, () => versions.map(lineOf).join('\n'));
  for (const { name, problems } of versions) if (problems) tellProblems(name, problems, json);
}

async function importBatteries(
  { change, means }: Tools,
  files: readonly string[],
  { product, json }: ImportOptions,
): Promise<void> {
  const lists = await Promise.all(
    files.map(async (file) => ({
      file,
      parsed: parseItems({ format: formatOf(file), bytes: await bytesOf(file) }, means.documentLimits),
    })),
  );
  for (const { file, parsed } of lists) if (!parsed.ok) tellProblems(file, parsed.problems, json);
  const items = lists.flatMap(({ parsed }) => (parsed.ok ? parsed.items : []));
  const isBad = lists.some(({ parsed }) => !parsed.ok);
  const { added, existing } = isBad
    ? { added: 0, existing: [] }
    : await change((work) => addItems(work, product, items));
  show(json, { added, existing }, () =>
    isBad
      ? 'Nothing was added.'
      : `${count(added, 'battery', 'batteries')} added, ${existing.length} there already.`,
  );
}

const lineOf = ({ name, state, factCount, problems }: DocumentVersion): string =>
  `${printable(name)}  ${state}  ${problems ? count(problems.length, 'problem') : count(factCount ?? 0, 'fact')}`;

function tellProblems(file: string, problems: readonly DocumentProblem[], json: boolean | undefined): void {
  process.exitCode = exitCodes.failed;
  if (json) return;
  for (const { row, column, message } of problems)
    complain(
      printable(
        `${file}: ${row === null ? '' : `row ${row}, `}${column === null ? '' : `column ${column}: `}${message}`,
      ),
    );
}

function formatOf(file: string): DocumentFormat {
  if (/\.json$/i.test(file)) return 'json';
  if (/\.csv$/i.test(file)) return 'csv';
  throw usage(`${file} must end with .csv or .json: that says how to read it`);
}

async function bytesOf(file: string): Promise<Uint8Array> {
  return readFile(file).catch(() => {
    throw usage(`the file ${file} cannot be read`);
  });
}
