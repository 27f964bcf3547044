import type { Command } from 'commander';
import { exitCodes, usage } from '../../../host/cli/exit.ts';
import {
  collect,
  examples,
  group,
  type JsonOption,
  more,
  type PageOptions,
  withJson,
  withPage,
} from '../../../host/cli/options.ts';
import { complain, show } from '../../../host/cli/output/print.ts';
import { table } from '../../../host/cli/output/table.ts';
import { terminalWidth } from '../../../host/cli/output/terminal.ts';
import { count, printable } from '../../../host/cli/output/text.ts';
import { relativeTime } from '../../../host/cli/output/time.ts';
import type { CommandFrame } from '../../../host/cli/session.ts';
import type { RuleProblem, TestCaseOutcome } from '../compile/types.ts';
import { lookAt, packageIn } from '../rules/look-at.ts';
import { listRulePackages, requireRulePackage, type StoredRulePackage } from '../store/rules.ts';
import { publishRulePackage, putRulePackage } from '../write/rules.ts';
import { readText } from './files.ts';
import { type TenantOption, withPassports, withTenant } from './tools.ts';

/** `tallyman passports rules …` */
export function addRules(passports: Command, frame: CommandFrame): void {
  const rules = group(passports, 'rules', 'rule packages: how facts become the fields of a passport');

  withJson(rules.command('check'))
    .description('check types, units and dependencies of a rule package; needs no database')
    .argument('<file>', 'the package as JSON')
    .addHelpText('after', examples(['passports rules check eu-battery.json']))
    .action(async (file: string, options: JsonOption) => {
      const { problems } = lookAt(await jsonOf(file));
      show(options.json, { ok: problems.length === 0, problems }, () =>
        problems.length === 0 ? 'The rules fit together.' : `${count(problems.length, 'problem')}.`,
      );
      tellProblems(problems, options.json);
    });

  withJson(rules.command('test'))
    .description('check a rule package and run its test cases; needs no database')
    .argument('<file>', 'the package as JSON')
    .addHelpText(
      'after',
      examples(['passports rules test eu-battery.json', 'passports rules test eu-battery.json --json']),
    )
    .action(async (file: string, options: JsonOption) => {
      const looked = lookAt(await jsonOf(file));
      show(options.json, looked, () => {
        if (looked.problems.length > 0)
          return `${count(looked.problems.length, 'problem')}; no case was run.`;
        if (looked.outcomes.length === 0)
          return 'There are no test cases: a package without any is not published.';
        return looked.outcomes
          .map(({ name, passed }) => `${passed ? 'passed' : 'FAILED'}  ${printable(name)}`)
          .join('\n');
      });
      tellProblems(looked.problems, options.json);
      tellDifferences(looked.outcomes, options.json);
      if (!looked.ok) process.exitCode = exitCodes.failed;
    });

  withTenant(rules.command('publish'))
    .description('store a rule package and publish it; refused while a test case fails')
    .argument('<file>', 'the package as JSON')
    .addHelpText('after', examples(['passports rules publish eu-battery.json']))
    .action(async (file: string, options: TenantOption) => {
      const value = await jsonOf(file);
      await withPassports(frame, options, async ({ change, on, means }) => {
        const id = await change(async (work) => {
          const stored = await putRulePackage(work, packageIn(value));
          await publishRulePackage(work, stored, means.build);
          return stored;
        });
        const { rulePackageJson } = await import('../routes/rules.ts');
        const found = await requireRulePackage(on, id);
        show(
          options.json,
          rulePackageJson(found),
          () => `${found.name} ${found.version} is ${found.state}\n${id}`,
        );
      });
    });

  withPage(rules.command('list').option('-t, --tenant <id>', 'of this tenant', 'default'))
    .description('rule packages and their states')
    .addHelpText('after', examples(['passports rules list']))
    .action((options: PageOptions & TenantOption) =>
      withPassports(frame, options, async ({ on, now }) => {
        const found = await collect(options, (at) => listRulePackages(on, at));
        const { rulePackageJson } = await import('../routes/rules.ts');
        const shown = { items: found.items.map(rulePackageJson), next_cursor: found.nextCursor };
        show(options.json, shown, () =>
          found.items.length === 0
            ? 'No rule packages.'
            : rulesTable(found.items, now) + more(found.nextCursor),
        );
      }),
    );
}

const rulesTable = (packages: readonly StoredRulePackage[], now: Date): string =>
  table<StoredRulePackage>(
    [
      { title: 'PACKAGE', value: ({ name, version }) => `${name} ${version}`, shrinkTo: 12 },
      { title: 'STATE', value: ({ state }) => state },
      { title: 'MADE', value: ({ createdAt }) => relativeTime(createdAt, now), leaveOut: 1 },
      { title: 'ID', value: ({ id }) => id },
    ],
    packages,
    terminalWidth(),
  );

function tellProblems(problems: readonly RuleProblem[], json: boolean | undefined): void {
  if (problems.length === 0) return;
  process.exitCode = exitCodes.failed;
  if (json) return;
  for (const { code, rule, position, message } of problems)
    complain(
      printable(
        `${rule ?? 'package'}${position ? ` ${position.line}:${position.column}` : ''}: ${code}: ${message}`,
      ),
    );
}

function tellDifferences(outcomes: readonly TestCaseOutcome[], json: boolean | undefined): void {
  const failing = outcomes.filter(({ passed }) => !passed);
  if (failing.length === 0) return;
  process.exitCode = exitCodes.failed;
  if (json) return;
  for (const { name, differences } of failing)
    for (const { field, expected, actual } of differences)
      complain(
        printable(`${name}: ${field} should be ${JSON.stringify(expected)}, is ${JSON.stringify(actual)}`),
      );
}

async function jsonOf(file: string): Promise<unknown> {
  const text = await readText(file);
  try {
    return JSON.parse(text);
  } catch {
    throw usage(`the file ${file} is no JSON`);
  }
}
