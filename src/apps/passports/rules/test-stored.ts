import { mustBeChecking } from '../compile/rules/check.ts';
import type { Slices } from '../compile/rules/slices.ts';
import { runningTestCases } from '../compile/rules/test-cases.ts';
import type { TestCaseOutcome } from '../compile/types.ts';
import { asPassportError } from '../errors.ts';
import type { FullRulePackage } from '../store/rules.ts';
import { betweenOthers } from './between-others.ts';

/** How the test cases of a stored package end. Throws if the package has problems. */
export function* testingRules(stored: FullRulePackage): Slices<readonly TestCaseOutcome[]> {
  return yield* runningTestCases(yield* mustBeChecking(stored.package));
}

/** Where no request waits for its turn: commands, and programs of one's own. */
export async function testNow(stored: FullRulePackage): Promise<readonly TestCaseOutcome[]> {
  try {
    return await betweenOthers(testingRules(stored));
  } catch (error) {
    throw asPassportError(error);
  }
}
