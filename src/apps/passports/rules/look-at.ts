import { BudgetExceeded } from '../compile/rules/budget.ts';
import { checkingRules } from '../compile/rules/check.ts';
import { parseRulePackage } from '../compile/rules/schema.ts';
import { atOnce, type Slices } from '../compile/rules/slices.ts';
import { runningTestCases } from '../compile/rules/test-cases.ts';
import type { RulePackage, RuleProblem, TestCaseOutcome } from '../compile/types.ts';
import { passportError } from '../errors.ts';

/** What is wrong with a package; how its test cases end if nothing is. */
export interface LookedAt {
  readonly ok: boolean;
  readonly problems: readonly RuleProblem[];
  readonly outcomes: readonly TestCaseOutcome[];
}

/** What is wrong with a package that nobody has stored yet; its test cases run if nothing is. Without any it is not `ok`. */
export const lookAt = (value: unknown): LookedAt => atOnce(lookingAt(value));

/** As `lookAt`, and gives way in between. */
export function* lookingAt(value: unknown): Slices<LookedAt> {
  const parsed = parseRulePackage(value);
  if (!parsed.ok) return { ok: false, problems: parsed.problems, outcomes: [] };
  const checked = yield* checkingRules(parsed.package);
  if (!checked.ok) return { ok: false, problems: checked.problems, outcomes: [] };
  try {
    const outcomes = yield* runningTestCases(checked.rules);
    return { ok: outcomes.length > 0 && outcomes.every(({ passed }) => passed), problems: [], outcomes };
  } catch (error) {
    if (!(error instanceof BudgetExceeded)) throw error;
    const { message, details } = error;
    const problem = {
      code: 'VALIDATION_ERROR',
      rule: details.rule ?? null,
      position: null,
      message,
    } as const;
    return { ok: false, problems: [problem], outcomes: [] };
  }
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
