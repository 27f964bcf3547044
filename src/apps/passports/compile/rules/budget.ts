import { CompileError } from '../errors.ts';
import { isList, type Value } from './values.ts';

/*
 * What rules may cost. A step is one sub-expression that is evaluated; long lists and texts count as many, since each
 * sub-expression that gives one copies or compares it. A rule has steps of its own, and all rules together have a budget:
 * without it 500 rules in 200 test cases would run for hours.
 *
 * The sample (75 rules) needs 1,700 steps for a battery, and 6,700 for its five test cases. Three hundred such rules in 200 cases need
 * 1.3 million.
 */

/** Of one rule for one battery: more than any passport needs, and short of a worker that hangs. */
const mostOfRule = 1_000_000;
/** Of one rule in one test case, whose few facts came with the package: what runs for a request must not hold up others. */
const mostOfRuleInCase = 250_000;
/** Of all rules: for one battery, or for all test cases of a package. */
const mostOfAll = 5_000_000;

/** All rules together need too much. No test case can expect it, and no condition goes on without it. */
export class BudgetExceeded extends CompileError {}

export class StepBudget {
  readonly mostOfRule: number;
  readonly #mostOfAll: number;
  #left: number;
  /** What is computed now, for the message: `test case "x"`. */
  doing: string;

  constructor({
    doing,
    mostOfRule,
    mostOfAll,
  }: {
    readonly doing: string;
    readonly mostOfRule: number;
    readonly mostOfAll: number;
  }) {
    this.doing = doing;
    this.mostOfRule = mostOfRule;
    this.#mostOfAll = mostOfAll;
    this.#left = mostOfAll;
  }

  get used(): number {
    return this.#mostOfAll - this.#left;
  }

  spend(rule: string, steps: number): void {
    this.#left -= steps;
    if (this.#left >= 0) return;
    throw new BudgetExceeded(
      'VALIDATION_ERROR',
      `rule ${rule}, ${this.doing}: the rules together need more than ${this.#mostOfAll} steps, and this is where they are used up. ` +
        'Simplify rules that go through a list within a list, or give test cases fewer facts',
      { rule },
    );
  }
}

export const budgetOfCompile = (): StepBudget =>
  new StepBudget({ doing: 'of this battery or model', mostOfRule, mostOfAll });

export const budgetOfCases = (): StepBudget =>
  new StepBudget({ doing: 'in the test cases', mostOfRule: mostOfRuleInCase, mostOfAll });

/** A number or a record costs nothing besides its step. */
const charactersOfStep = 16;

const known = new WeakMap<readonly Value[], number>();

/**
 * What copying or comparing a value costs. A list counts its elements as often as they are in it: `[a, a]` in `[b, b]` in
 * `[c, c]` takes little memory, and has 2^n elements for whatever goes through it.
 */
export function costOf(value: Value): number {
  if (typeof value === 'string') return Math.floor(value.length / charactersOfStep);
  if (!isList(value)) return 0;
  const before = known.get(value);
  if (before !== undefined) return before;
  let cost = value.length;
  for (const each of value) cost += costOf(each);
  known.set(value, cost);
  return cost;
}
