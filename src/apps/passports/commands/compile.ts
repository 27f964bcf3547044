import type { Command } from 'commander';
import { InvalidArgumentError } from 'commander';
import { exitCodes } from '../../../host/cli/exit.ts';
import { examples } from '../../../host/cli/options.ts';
import { complain, show } from '../../../host/cli/output/print.ts';
import { table } from '../../../host/cli/output/table.ts';
import { terminalWidth } from '../../../host/cli/output/terminal.ts';
import type { CommandFrame } from '../../../host/cli/session.ts';
import { requireIssue } from '../issue.ts';
import { labelLink } from '../page/disclosure.ts';
import { furnishIn } from '../sample.ts';
import { listPassports, requireVersion, type StoredPassport } from '../store/index.ts';
import { progressOf } from '../store/progress.ts';
import { findVersions, type PassportVersion } from '../store/versions.ts';
import { requestItemVersion, requestModelVersion } from '../write/versions.ts';
import { type TenantOption, type Tools, withPassports, withTenant } from './tools.ts';

interface CompileOptions extends TenantOption {
  readonly rules: string;
  readonly issuedAt?: Date;
  readonly items: boolean;
  readonly battery?: string;
}

/** `tallyman passports compile` and `sample`: from a snapshot to active passports. */
export function addCompile(passports: Command, frame: CommandFrame): void {
  withTenant(passports.command('compile'))
    .description('compile, sign and activate the passports of a model and of its batteries')
    .argument('<product>', 'the model')
    .requiredOption('--rules <package>', 'the rule package: its id, or its name for the one published last')
    .option('--issued-at <time>', 'when the passports are issued (default: now)', time)
    .option('--no-items', 'the passport of the model alone')
    .option('--battery <serial>', 'the passport of this battery alone')
    .addHelpText(
      'after',
      examples([
        'passports compile pack-100 --rules eu-battery',
        'passports compile pack-100 --rules eu-battery --battery SP100-000001',
      ]),
    )
    .action((product: string, options: CompileOptions) =>
      withPassports(frame, options, (tools) => compileProduct(tools, product, options)),
    );

  withTenant(passports.command('sample'))
    .description('put a sample battery in place (model, 3 batteries, documents, rules) and compile it')
    .addHelpText('after', examples(['passports sample', 'passports sample --tenant acme --json']))
    .action((options: TenantOption) =>
      withPassports(frame, options, async (tools) => {
        const { productId } = await tools.change((work) =>
          furnishIn(work, tools.means, { issuedAt: tools.now, progress: complain }),
        );
        await settleProduct(tools, productId);
        await tell(tools, productId, undefined, options.json);
      }),
    );
}

async function compileProduct(
  tools: Tools,
  product: string,
  { rules, issuedAt = tools.now, items, battery, json }: CompileOptions,
): Promise<void> {
  const serial = battery === undefined ? {} : { serial: battery };
  const found = await listPassports(tools.on, { productId: product, ...serial }, { limit: 1 });
  const version = await tools.change(async (work) => {
    const issue = await requireIssue(work.on, tools.means, {
      rules,
      issuedAt,
      withItems: items && battery === undefined,
    });
    if (battery === undefined) return requestModelVersion(work, product, issue);
    return requestItemVersion(work, found.items[0]?.id ?? notThere(battery, product), issue);
  });
  await settleProduct(tools, product);
  await tell(tools, product, version, json);
}

function notThere(serial: string, product: string): never {
  throw new InvalidArgumentError(`There is no battery ${serial} of ${product}.`);
}

const settleProduct = ({ settle, on }: Tools, product: string): Promise<void> =>
  settle('compiling', async () => {
    const { batteries, versions } = await progressOf(on, product);
    const { ACTIVE = 0, SUPERSEDED = 0, REVOKED = 0, FAILED = 0 } = versions;
    return { done: ACTIVE + SUPERSEDED + REVOKED + FAILED, total: batteries };
  });

/** What came of it: the passports by state, and why one could not be finished. */
async function tell(
  tools: Tools,
  product: string,
  versionId: string | undefined,
  json: boolean | undefined,
): Promise<void> {
  const progress = await progressOf(tools.on, product);
  const asked = versionId === undefined ? undefined : await requireVersion(tools.on, versionId);
  const { items } = await listPassports(tools.on, { productId: product }, { limit: 20 });
  const active = await findVersions(
    tools.on,
    items.flatMap(({ activeVersionId }) => activeVersionId ?? []),
  );
  const { passportJson } = await import('../routes/passports.ts');
  show(json, { ...progress, passports: items.map((each) => passportJson(each)) }, () =>
    passportsTable(tools, items, active),
  );
  const failure =
    asked?.error?.message ??
    progress.model?.error ??
    (progress.model === null ? progress.snapshot?.error : undefined) ??
    (progress.documents.REJECTED ? 'a document was rejected: see tallyman passports documents' : undefined);
  const failed = progress.versions.FAILED ?? 0;
  if (failure === undefined && failed === 0 && progress.model?.state === 'ACTIVE') return;
  process.exitCode = exitCodes.failed;
  if (failure !== undefined) complain(`error: ${failure}`);
  if (failed > 0)
    complain(`error: ${failed} versions could not be compiled: see tallyman jobs list --status failed`);
}

function passportsTable(
  { config }: Tools,
  passports: readonly StoredPassport[],
  active: readonly PassportVersion[],
): string {
  const origin = `https://${(config as unknown as Record<string, string>)['passports.host']}`;
  const versionOf = ({ activeVersionId }: StoredPassport) => active.find(({ id }) => id === activeVersionId);
  return table<StoredPassport>(
    [
      { title: 'BATTERY', value: ({ serial }) => serial ?? '(the model)' },
      { title: 'STATE', value: (passport) => versionOf(passport)?.state ?? '–' },
      { title: 'VERSION', value: (passport) => versionOf(passport)?.number ?? null, right: true },
      { title: 'ADDRESS', value: ({ gtin, serial }) => labelLink(origin, gtin, serial), leaveOut: 1 },
      { title: 'PASSPORT', value: ({ id }) => id, leaveOut: 2 },
    ],
    passports,
    terminalWidth(),
  );
}

function time(text: string): Date {
  const date = new Date(text);
  if (Number.isNaN(date.getTime()))
    throw new InvalidArgumentError('Expected a time such as 2027-02-18T00:00:00Z.');
  return date;
}
