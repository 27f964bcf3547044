import { sha256Hex, utf8 } from '../compile/hash.ts';
import { type CheckedRules, mustBeChecking } from '../compile/rules/check.ts';
import type { Slices } from '../compile/rules/slices.ts';
import { runningTestCases } from '../compile/rules/test-cases.ts';
import type { Hash, RulePackage } from '../compile/types.ts';
import { passportError } from '../errors.ts';
import { betweenOthers } from './between-others.ts';

/** Packages that a process keeps checked: checking one takes longer than a thousand of its items need. */
const most = 20;

/**
 * Checked rules by the hash of their content. The test cases run once for each content and process: a package that was
 * marked as published by force, with a forged report, compiles nothing.
 */
export class RuleCache {
  readonly #checked = new Map<Hash, CheckedRules>();
  readonly #underWay = new Map<Hash, Promise<CheckedRules>>();

  /** Checks it first if it is not known; requests of others come in between. */
  async get(hash: Hash, content: () => string): Promise<CheckedRules> {
    const known = this.#checked.get(hash);
    if (known) return known;
    const text = content();
    // Before it is looked up by its hash: a forged content must not end the check of the true one.
    if (sha256Hex(utf8(text)) !== hash)
      throw passportError('VALIDATION_ERROR', `the stored rule package has another SHA-256 than ${hash}`);
    const underWay = this.#underWay.get(hash) ?? this.#prove(hash, text);
    this.#underWay.set(hash, underWay);
    return underWay;
  }

  has(hash: Hash): boolean {
    return this.#checked.has(hash);
  }

  async #prove(hash: Hash, content: string): Promise<CheckedRules> {
    try {
      const checked = await betweenOthers(provingRules(content));
      const [oldest] = this.#checked.keys();
      if (this.#checked.size >= most && oldest !== undefined) this.#checked.delete(oldest);
      this.#checked.set(hash, checked);
      return checked;
    } finally {
      this.#underWay.delete(hash);
    }
  }
}

function* provingRules(content: string): Slices<CheckedRules> {
  const checked = yield* mustBeChecking(JSON.parse(content) as RulePackage);
  const failing = (yield* runningTestCases(checked)).filter(({ passed }) => !passed);
  if (failing.length > 0)
    throw passportError(
      'RULE_TESTS_FAILED',
      `test cases of rule package ${checked.package.id} ${checked.package.version} fail: ${failing.map(({ name }) => name).join(', ')}`,
      { failing },
    );
  return checked;
}
