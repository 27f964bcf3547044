import { canonical } from '../canonical.ts';
import { CompileError } from '../errors.ts';
import { factSchemaVersion } from '../facts.ts';
import type { FieldResult, Json, RuleTestCase, TestCaseOutcome } from '../types.ts';
import type { CheckedRules } from './check.ts';
import { noTrace, runRules } from './run.ts';

/** Runs the cases of a package. Publish it only if all of them passed. One that expects nothing proves nothing: it fails. */
export function runTestCases(rules: CheckedRules): readonly TestCaseOutcome[] {
  return rules.package.testCases.map((testCase) => {
    const actual = resultsOf(rules, testCase);
    const expectations = Object.entries(testCase.expect);
    const differences = expectations.flatMap(([field, expected]) => {
      const found: Json =
        'error' in actual ? { error: actual.error } : ((actual.results.get(field) ?? null) as Json);
      return canonical(found) === canonical(expected as Json)
        ? []
        : [{ field, expected: expected as Json, actual: found }];
    });
    const passed = expectations.length > 0 && differences.length === 0;
    return { name: testCase.name, passed, differences };
  });
}

function resultsOf(
  { rules }: CheckedRules,
  { facts, product, item, issuedAt }: RuleTestCase,
): { readonly results: ReadonlyMap<string, FieldResult> } | { readonly error: string } {
  try {
    const input = {
      facts: facts.map((fact) => ({ ...fact, schemaVersion: factSchemaVersion, sources: [] })),
      product,
      item,
      issuedAt,
    };
    const outcomes = runRules(rules, input, noTrace);
    return { results: new Map(outcomes.map(({ rule, result }) => [rule.field, result])) };
  } catch (error) {
    // A case may expect a failure: that a missing mandatory fact stops the compile, for example.
    if (error instanceof CompileError) return { error: error.code };
    throw error;
  }
}
