import { canonical } from '../canonical.ts';
import { CompileError } from '../errors.ts';
import { factSchemaVersion } from '../facts.ts';
import type { FieldResult, Json, RuleTestCase, TestCaseOutcome } from '../types.ts';
import { BudgetExceeded, budgetOfCases, type StepBudget } from './budget.ts';
import type { CheckedRules } from './check.ts';
import { noTrace, runningRules } from './run.ts';
import { atOnce, type Slices } from './slices.ts';

/**
 * Runs the cases of a package. Publish it only if all of them passed. One that expects nothing proves nothing: it fails. Throws
 * `BudgetExceeded` if they need more steps together than there are.
 */
export const runTestCases = (rules: CheckedRules): readonly TestCaseOutcome[] =>
  atOnce(runningTestCases(rules));

/** As `runTestCases`, and gives way after each rule of each case. */
export function* runningTestCases(rules: CheckedRules): Slices<readonly TestCaseOutcome[]> {
  const budget = budgetOfCases();
  const outcomes: TestCaseOutcome[] = [];
  for (const testCase of rules.package.testCases) {
    budget.doing = `in test case "${testCase.name.slice(0, 100)}"`;
    outcomes.push(outcomeOf(testCase, yield* resultsOf(rules, testCase, budget)));
  }
  return outcomes;
}

type Results = { readonly results: ReadonlyMap<string, FieldResult> } | { readonly error: string };

function outcomeOf({ name, expect }: RuleTestCase, actual: Results): TestCaseOutcome {
  const expectations = Object.entries(expect);
  const differences = expectations.flatMap(([field, expected]) => {
    const found: Json =
      'error' in actual ? { error: actual.error } : ((actual.results.get(field) ?? null) as Json);
    return canonical(found) === canonical(expected as Json)
      ? []
      : [{ field, expected: expected as Json, actual: found }];
  });
  return { name, passed: expectations.length > 0 && differences.length === 0, differences };
}

function* resultsOf(
  { rules }: CheckedRules,
  { facts, product, item, issuedAt }: RuleTestCase,
  budget: StepBudget,
): Slices<Results> {
  try {
    const input = {
      facts: facts.map((fact) => ({ ...fact, schemaVersion: factSchemaVersion, sources: [] })),
      product,
      item,
      issuedAt,
    };
    const outcomes = yield* runningRules(rules, input, noTrace, budget);
    return { results: new Map(outcomes.map(({ rule, result }) => [rule.field, result])) };
  } catch (error) {
    // A case may expect a failure: that a missing mandatory fact stops the compile, for example.
    if (error instanceof CompileError && !(error instanceof BudgetExceeded)) return { error: error.code };
    throw error;
  }
}
