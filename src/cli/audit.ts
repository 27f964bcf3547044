import { type Command, InvalidArgumentError } from 'commander';
import { given } from '../given.ts';
import { exitCodes } from '../host/cli/exit.ts';
import { examples, group, type JsonOption, withJson } from '../host/cli/options.ts';
import { print, show } from '../host/cli/output/print.ts';
import type { CommandFrame } from '../host/cli/session.ts';
import { loadSecretBox } from '../host/process/secrets.ts';
import { type AuditReport, type Head, headText, parseHead, verifyAudit } from '../server/audit/verify.ts';
import { serverComponent } from '../server/component.ts';

export function addAudit(program: Command, { withTallyman }: CommandFrame): void {
  const audit = group(program, 'audit', 'what was done over the API, and whether the record of it is whole');

  withJson(audit.command('verify'))
    .description('read the audit again and compare it with its seals; exits with 1 if something was changed')
    .option('--head <head>', 'a head that you noted earlier: also finds that the end was cut off', head)
    .addHelpText('after', examples(['audit verify', 'audit verify --head 1042:9f86d081884c…']))
    .action((options: JsonOption & { head?: Head }) =>
      withTallyman(
        async ({ tallyman, config }) => {
          const report = await verifyAudit(
            tallyman.database,
            await loadSecretBox(config),
            given({ head: options.head }),
          );
          show(options.json, reportJson(report), () => summaryOf(report));
          for (const problem of options.json ? [] : report.problems) print(`  ${problem}`);
          if (!report.isIntact) process.exitCode = exitCodes.failed;
        },
        [serverComponent],
      ),
    );
}

function head(text: string): Head {
  try {
    return parseHead(text);
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message);
  }
}

const reportJson = ({ isIntact, problems, seals, events, pruned, unsealed, head: last }: AuditReport) => ({
  intact: isIntact,
  problems,
  seals,
  events,
  pruned,
  unsealed,
  head: last ? headText(last) : null,
});

function summaryOf({ isIntact, seals, events, pruned, unsealed, head: last }: AuditReport): string {
  const lines = [
    isIntact
      ? `The audit is as it was sealed: ${events} events in ${seals} seals.`
      : 'The audit was changed after it was sealed:',
    ...(pruned > 0 ? [`${pruned} older events were deleted by retention.`] : []),
    ...(unsealed > 0
      ? [`${unsealed} events are not sealed yet; a running server does that within a minute.`]
      : []),
    ...(last && isIntact ? [`Head: ${headText(last)}`] : []),
  ];
  return lines.join('\n');
}
