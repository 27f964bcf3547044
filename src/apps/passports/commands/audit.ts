import type { Command } from 'commander';
import { TallymanError } from '../../../engine/errors.ts';
import { exitCodes, usage } from '../../../host/cli/exit.ts';
import { examples } from '../../../host/cli/options.ts';
import { show } from '../../../host/cli/output/print.ts';
import { count } from '../../../host/cli/output/text.ts';
import type { CommandFrame } from '../../../host/cli/session.ts';
import { headText, lastHead, readHead } from '../audit/saved-head.ts';
import { type AuditReport, type KnownHead, verifyAudit } from '../audit/verify.ts';
import type { KeyRing } from '../signing/keys.ts';
import { readText, writeWhole } from './files.ts';
import { type TenantOption, withPassports, withTenant } from './tools.ts';

interface AuditOptions extends TenantOption {
  readonly head?: string;
  readonly saveHead?: string;
}

/** `tallyman passports audit`: is everything as it was written? */
export function addAudit(passports: Command, frame: CommandFrame): void {
  withTenant(passports.command('audit'))
    .description('check the hash-chained audit and the signed heads over it; names the first broken link')
    .option('--head <file>', 'a head that was saved before: shows whether the trail was cut back since')
    .option('--save-head <file>', 'save the last signed head, if every link holds; keep the file elsewhere')
    .addHelpText(
      'after',
      examples([
        'passports audit',
        'passports audit --tenant acme --json',
        'passports audit --head acme.head.json --save-head acme.head.json',
      ]),
    )
    .action((options: AuditOptions) =>
      withPassports(frame, options, async ({ on, means }) => {
        const known =
          options.head === undefined ? undefined : await headIn(options.head, options, means.keys);
        const { report, last } = await on.transaction(async (scope) => {
          // One moment for all parts, while others write.
          await scope.query('set transaction isolation level repeatable read');
          return {
            report: await verifyAudit(scope, means.keys, known ? { known } : {}),
            last: await lastHead(scope),
          };
        });
        const file = report.broken === null ? options.saveHead : undefined;
        if (file !== undefined) {
          if (!last) throw noHead();
          await writeWhole(file, headText(last));
        }
        show(options.json, report, () => forPeople(report, known, file));
        if (report.broken !== null) process.exitCode = exitCodes.failed;
      }),
    );
}

const noHead = (): TallymanError =>
  new TallymanError(
    'BAD_STATE',
    'there is no signed head yet: `tallyman serve` signs one within a minute (passports.auditCron)',
  );

async function headIn(
  file: string,
  { tenant }: TenantOption,
  keys: Pick<KeyRing, 'publicKeys'>,
): Promise<KnownHead> {
  const text = await readText(file);
  try {
    return readHead(text, tenant, keys);
  } catch (error) {
    if (error instanceof TallymanError) throw usage(`${file} cannot be used: ${error.message}`);
    throw error;
  }
}

function forPeople(
  { events, heads, uncovered, broken, head }: AuditReport,
  known: KnownHead | undefined,
  saved: string | undefined,
): string {
  const holds = known
    ? `Every link holds, and head ${known.number} is the one that you know.`
    : 'Every link holds.';
  return [
    `${count(events, 'event')}, ${count(heads, 'signed head')}, ${uncovered} not covered by a head yet.`,
    broken === null ? holds : `BROKEN at ${broken.at}: ${broken.message}`,
    ...(saved === undefined
      ? []
      : [`Head ${head?.number} is in ${saved}: keep it where the owner of the database cannot write.`]),
  ].join('\n');
}
