import type { Command } from 'commander';
import { TallymanError } from '../../../engine/errors.ts';
import { given } from '../../../given.ts';
import { exitCodes } from '../../../host/cli/exit.ts';
import { collect, examples, more, oneOf, type PageOptions, withPage } from '../../../host/cli/options.ts';
import { complain, show } from '../../../host/cli/output/print.ts';
import { facts, table } from '../../../host/cli/output/table.ts';
import { Progress, terminalWidth } from '../../../host/cli/output/terminal.ts';
import { count } from '../../../host/cli/output/text.ts';
import { relativeTime } from '../../../host/cli/output/time.ts';
import type { CommandFrame } from '../../../host/cli/session.ts';
import { passportErrors } from '../errors.ts';
import { type CheckedEvents, replayVersion } from '../replay.ts';
import { SnapshotCache } from '../snapshot-cache.ts';
import {
  type DocumentState,
  documentStates,
  findPassport,
  listDocumentVersions,
  listPassports,
  listVersions,
  type PassportVersion,
  predecessorsOf,
  type StoredPassport,
  successorsOf,
  versionsOf,
} from '../store/index.ts';
import { type TenantOption, type Tools, withPassports, withTenant } from './tools.ts';

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

type ListOptions = PageOptions & TenantOption & { readonly product?: string; readonly serial?: string };

/** `tallyman passports list|show|documents|replay`: looking, and compiling again. */
export function addShow(passports: Command, frame: CommandFrame): void {
  const listed = (command: Command): Command =>
    withPage(command.option('-t, --tenant <id>', 'of this tenant', 'default')).option(
      '--product <id>',
      'of this model',
    );

  listed(passports.command('list'))
    .description('passports of models and batteries')
    .option('--serial <number>', 'of the battery with this serial number')
    .addHelpText('after', examples(['passports list', 'passports list --product pack-100 --json']))
    .action((options: ListOptions) =>
      withPassports(frame, options, async ({ on }) => {
        const filter = given({ productId: options.product, serial: options.serial });
        const found = await collect(options, (at) => listPassports(on, filter, at));
        const { passportJson } = await import('../routes/passports.ts');
        const shown = { items: found.items.map((each) => passportJson(each)), next_cursor: found.nextCursor };
        show(options.json, shown, () => listTable(found.items) + more(found.nextCursor));
      }),
    );

  withTenant(passports.command('show'))
    .description('one passport: its battery and its versions')
    .argument('<passport>', 'its id, or the serial number of the battery')
    .addHelpText('after', examples(['passports show SP100-000001', 'passports show SP100-000001 --json']))
    .action((name: string, options: TenantOption) =>
      withPassports(frame, options, async (tools) => {
        const passport = await passportNamed(tools, name);
        const { items: versions } = await versionsOf(tools.on, passport.id, { limit: 20 });
        const { passportDetailsJson } = await import('../routes/passports.ts');
        const related = {
          predecessors: await predecessorsOf(tools.on, passport.id),
          successors: await successorsOf(tools.on, passport.id),
        };
        show(options.json, passportDetailsJson(passport, related), () => page(passport, versions, tools.now));
      }),
    );

  listed(passports.command('documents'))
    .description('documents and how far they are; --json tells the problems by row and column')
    .option('-s, --state <state>', `that are ${documentStates.join(', ')}`, oneOf(documentStates))
    .addHelpText('after', examples(['passports documents --state rejected --json']))
    .action((options: PageOptions & TenantOption & { product?: string; state?: DocumentState }) =>
      withPassports(frame, options, async ({ on, now }) => {
        const filter = given({ productId: options.product, state: options.state });
        const found = await collect(options, (at) => listDocumentVersions(on, filter, at));
        const { documentJson } = await import('../routes/documents.ts');
        const shown = { items: found.items.map(documentJson), next_cursor: found.nextCursor };
        show(options.json, shown, () =>
          found.items.length === 0
            ? 'No documents.'
            : table(
                [
                  { title: 'DOCUMENT', value: ({ name, number }) => `${name} v${number}`, shrinkTo: 12 },
                  { title: 'PRODUCT', value: ({ productId }) => productId, shrinkTo: 8 },
                  { title: 'STATE', value: ({ state }) => state },
                  { title: 'FACTS', value: ({ factCount }) => factCount, right: true },
                  { title: 'PROBLEMS', value: ({ problems }) => problems?.length ?? null, right: true },
                  { title: 'UPLOADED', value: ({ createdAt }) => relativeTime(createdAt, now), leaveOut: 1 },
                ],
                found.items,
                terminalWidth(),
              ) + more(found.nextCursor),
        );
      }),
    );

  withTenant(passports.command('replay'))
    .description(
      'compile versions again, compare hashes and signatures, and check the signed events of their batteries',
    )
    .argument('[version...]', 'ids of versions')
    .option('--all', 'every version of the tenant that is compiled')
    .addHelpText('after', examples(['passports replay 7b0c6d4e-…', 'passports replay --all --json']))
    .action((ids: string[], options: TenantOption & { readonly all?: boolean }) =>
      withPassports(frame, options, (tools) => replay(tools, ids, options)),
    );
}

async function replay(
  { on, means }: Tools,
  ids: readonly string[],
  { all, json }: TenantOption & { readonly all?: boolean },
): Promise<void> {
  if ((all === true) === ids.length > 0)
    throw new TallymanError('BAD_OPTION', 'name versions by their ids, or say --all');
  const results: { version_id: string; ok: boolean; receipt_hash?: string; error?: string }[] = [];
  const progress = new Progress('replaying');
  const [snapshots, events]: [SnapshotCache, CheckedEvents] = [new SnapshotCache(), new Map()];
  for await (const id of all ? compiledVersions(on) : ids) {
    try {
      const { receiptHash } = await replayVersion(on, id, means, snapshots, events);
      results.push({ version_id: id, ok: true, receipt_hash: receiptHash });
    } catch (error) {
      if (!(error instanceof TallymanError) || !(error.code in passportErrors)) throw error;
      results.push({ version_id: id, ok: false, error: `${error.code}: ${error.message}` });
    }
    progress.show(results.length, all ? undefined : ids.length);
  }
  progress.end();
  const failed = results.filter(({ ok }) => !ok);
  show(json, { replayed: results.length, failed: failed.length, items: results }, () =>
    [
      ...results
        .slice(0, 20)
        .flatMap(({ version_id, ok, receipt_hash }) =>
          ok ? `${version_id}  same bytes, receipt ${receipt_hash}` : [],
        ),
      `${count(results.length, 'version')} compiled again, ${failed.length} differ.`,
    ].join('\n'),
  );
  if (failed.length === 0) return;
  process.exitCode = exitCodes.failed;
  if (!json) for (const { error } of failed) complain(`error: ${error}`);
}

async function* compiledVersions(on: Tools['on']): AsyncGenerator<string> {
  let cursor: string | undefined;
  do {
    const found = await listVersions(on, {}, { limit: 200, ...(cursor !== undefined && { cursor }) });
    for (const { id, receiptHash } of found.items) if (receiptHash !== null) yield id;
    cursor = found.nextCursor ?? undefined;
  } while (cursor !== undefined);
}

async function passportNamed({ on }: Tools, name: string): Promise<StoredPassport> {
  const byId = uuid.test(name) ? await findPassport(on, name) : undefined;
  if (byId) return byId;
  const { items } = await listPassports(on, { serial: name }, { limit: 2 });
  const [found] = items;
  if (!found) throw new TallymanError('NOT_FOUND', `there is no passport and no battery ${name}`);
  if (items.length > 1)
    throw new TallymanError(
      'AMBIGUOUS',
      `several models have a battery ${name}: name the passport by its id`,
    );
  return found;
}

function listTable(passports: readonly StoredPassport[]): string {
  if (passports.length === 0) return 'No passports.';
  return table<StoredPassport>(
    [
      { title: 'PASSPORT', value: ({ id }) => id },
      { title: 'PRODUCT', value: ({ productId }) => productId, shrinkTo: 8 },
      { title: 'BATTERY', value: ({ serial }) => serial ?? '(the model)' },
      { title: 'STATUS', value: ({ item }) => item?.status ?? null },
      { title: 'ACTIVE VERSION', value: ({ activeVersionId }) => activeVersionId, leaveOut: 1 },
    ],
    passports,
    terminalWidth(),
  );
}

function page(passport: StoredPassport, versions: readonly PassportVersion[], now: Date): string {
  const { item } = passport;
  const head = facts([
    ['passport', passport.id],
    ['product', passport.productId],
    ['GTIN', passport.gtin],
    ['battery', passport.serial ?? '(the model)'],
    ['made', item && `${item.manufacturedOn}, ${item.manufacturedAt}`],
    ['status', item?.status ?? null],
    ['ceased', item?.ceasedAt ? `${item.ceasedAt.toISOString()}: ${item.ceasedReason}` : null],
  ]);
  if (versions.length === 0) return `${head}\n\nNo versions.`;
  const list = table<PassportVersion>(
    [
      { title: 'NO', value: ({ number }) => number, right: true },
      { title: 'STATE', value: ({ state, error }) => (error ? `${state} (${error.code})` : state) },
      { title: 'ISSUED', value: ({ issuedAt }) => issuedAt },
      { title: 'KEY', value: ({ signingKey }) => signingKey, leaveOut: 1 },
      { title: 'ASKED FOR', value: ({ createdAt }) => relativeTime(createdAt, now), leaveOut: 2 },
      { title: 'VERSION', value: ({ id }) => id },
    ],
    versions,
    terminalWidth(),
  );
  return `${head}\n\n${list}`;
}
