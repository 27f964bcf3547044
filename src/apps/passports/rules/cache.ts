import { sha256Hex, utf8 } from '../compile/hash.ts';
import { type CheckedRules, mustCheck } from '../compile/rules/check.ts';
import { runTestCases } from '../compile/rules/test-cases.ts';
import type { Hash, RulePackage } from '../compile/types.ts';
import { passportError } from '../errors.ts';

/** Packages that a process keeps checked: checking one takes longer than a thousand of its items need. */
const most = 20;

/**
 * Checked rules by the hash of their content. The test cases run once for each content and process: a package that was
 * marked as published by force, with a forged report, compiles nothing.
 */
export class RuleCache {
  readonly #checked = new Map<Hash, CheckedRules>();

  get(hash: Hash, content: () => string): CheckedRules {
    const known = this.#checked.get(hash);
    if (known) return known;
    const checked = provenRules(hash, content());
    const [oldest] = this.#checked.keys();
    if (this.#checked.size >= most && oldest !== undefined) this.#checked.delete(oldest);
    this.#checked.set(hash, checked);
    return checked;
  }

  has(hash: Hash): boolean {
    return this.#checked.has(hash);
  }
}

function provenRules(hash: Hash, content: string): CheckedRules {
  if (sha256Hex(utf8(content)) !== hash)
    throw passportError('VALIDATION_ERROR', `the stored rule package has another SHA-256 than ${hash}`);
  const checked = mustCheck(JSON.parse(content) as RulePackage);
  const failing = runTestCases(checked).filter(({ passed }) => !passed);
  if (failing.length > 0)
    throw passportError(
      'RULE_TESTS_FAILED',
      `test cases of rule package ${checked.package.id} ${checked.package.version} fail: ${failing.map(({ name }) => name).join(', ')}`,
      { failing },
    );
  return checked;
}
