import { TallymanError } from '../../../engine/errors.ts';
import { OutsideTransaction } from '../../../engine/outside-transaction.ts';
import type { Slices } from '../compile/rules/slices.ts';
import type { TestCaseOutcome } from '../compile/types.ts';
import { asPassportError } from '../errors.ts';
import type { FullRulePackage } from '../store/rules.ts';
import { betweenOthers } from './between-others.ts';
import { type LookedAt, lookingAt } from './look-at.ts';
import { testingRules } from './test-stored.ts';

/** Requests of one tenant that may wait for its turn. */
const mostWaiting = 16;
/** Outcomes that are kept until their requests have run again. */
const mostOutcomes = 50;

/**
 * Checks and tests rule packages for requests: outside of their transactions, one package of each tenant at a time, with
 * requests of others in between.
 */
export class RuleRequests {
  readonly #looked = new WeakMap<object, LookedAt>();
  readonly #outcomes = new Map<string, readonly TestCaseOutcome[]>();
  readonly #lines = new Map<string, { waiting: number; last: Promise<unknown> }>();

  /** Throws `OutsideTransaction` until it is known. `given` is the body of the request: the same object each time that the route runs. */
  lookAt(tenantId: string, given: object): LookedAt {
    const known = this.#looked.get(given);
    if (known) return known;
    throw new OutsideTransaction(async () => {
      this.#looked.set(given, await this.#inTurn(tenantId, () => lookingAt(given)));
    });
  }

  /** Throws `OutsideTransaction` until they are known. */
  outcomesOf(tenantId: string, stored: FullRulePackage): readonly TestCaseOutcome[] {
    const name = `${tenantId} ${stored.hash}`;
    const known = this.#outcomes.get(name);
    if (known) return known;
    throw new OutsideTransaction(async () => {
      const outcomes = await this.#inTurn(tenantId, () => testingRules(stored));
      const [oldest] = this.#outcomes.keys();
      if (this.#outcomes.size >= mostOutcomes && oldest !== undefined) this.#outcomes.delete(oldest);
      this.#outcomes.set(name, outcomes);
    });
  }

  async #inTurn<T>(tenantId: string, slices: () => Slices<T>): Promise<T> {
    const line = this.#lines.get(tenantId) ?? { waiting: 0, last: Promise.resolve() };
    if (line.waiting >= mostWaiting)
      throw new TallymanError(
        'TENANT_BUSY',
        `${mostWaiting} rule packages of this tenant are already being checked; try again in a moment`,
      );
    this.#lines.set(tenantId, line);
    line.waiting += 1;
    const mine = line.last.then(() => betweenOthers(slices()));
    line.last = mine.catch(() => undefined);
    try {
      return await mine;
    } catch (error) {
      throw asPassportError(error);
    } finally {
      line.waiting -= 1;
      if (line.waiting === 0) this.#lines.delete(tenantId);
    }
  }
}
