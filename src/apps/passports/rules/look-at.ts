import { checkRules } from '../compile/rules/check.ts';
import { parseRulePackage } from '../compile/rules/schema.ts';
import { runTestCases } from '../compile/rules/test-cases.ts';
import type { RulePackage, RuleProblem, TestCaseOutcome } from '../compile/types.ts';
import { passportError } from '../errors.ts';

/** What is wrong with a package that nobody has stored yet; its test cases run if nothing is. Without any it is not `ok`. */
export function lookAt(value: unknown): {
  readonly ok: boolean;
  readonly problems: readonly RuleProblem[];
  readonly outcomes: readonly TestCaseOutcome[];
} {
  const parsed = parseRulePackage(value);
  if (!parsed.ok) return { ok: false, problems: parsed.problems, outcomes: [] };
  const checked = checkRules(parsed.package);
  if (!checked.ok) return { ok: false, problems: checked.problems, outcomes: [] };
  const outcomes = runTestCases(checked.rules);
  return { ok: outcomes.length > 0 && outcomes.every(({ passed }) => passed), problems: [], outcomes };
}

/** A package of the right shape; what its expressions mean is checked when it is tested or published. */
export function packageIn(value: unknown): RulePackage {
  const parsed = parseRulePackage(value);
  if (parsed.ok) return parsed.package;
  const [first] = parsed.problems;
  throw passportError('VALIDATION_ERROR', `body.package${first?.message ?? ' is no rule package'}`, {
    problems: parsed.problems,
  });
}
