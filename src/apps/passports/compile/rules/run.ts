import { CompileError } from '../errors.ts';
import type { Fact, FieldResult, Hash, Item, Json, Product, Rule } from '../types.ts';
import { budgetOfCompile, costOf, type StepBudget } from './budget.ts';
import type { CheckedRule, CheckedRules } from './check.ts';
import { Evaluation, EvaluationFailure, type Traced, type Tracer } from './evaluate.ts';
import { CompileInputs, type FieldValue, type InputTracer } from './inputs.ts';
import { atOnce, type Slices } from './slices.ts';
import { valueToJson } from './values.ts';

/** Makes all nodes of a derivation. */
export interface RuleTracer extends Tracer, InputTracer {
  field(rule: Rule, result: FieldResult, child: Hash | undefined): Hash;
}

/** For those who want the results only. */
export const noTrace: RuleTracer = {
  expression: () => '',
  fact: () => '',
  absent: () => '',
  input: () => '',
  list: () => '',
  field: () => '',
};

export interface RunInput {
  readonly facts: readonly Fact[];
  readonly product: Product;
  readonly item: Item | null;
  readonly issuedAt: string;
}

export interface FieldOutcome {
  readonly rule: Rule;
  readonly result: FieldResult;
  readonly node: Hash;
}

/** The results of all rules, or of those given. A rule comes after those that it reads. */
export function runRules(
  rules: readonly CheckedRule[],
  input: RunInput,
  tracer: RuleTracer,
  budget: StepBudget = budgetOfCompile(),
): readonly FieldOutcome[] {
  return atOnce(runningRules(rules, input, tracer, budget));
}

/** As `runRules`, and gives way after each rule. */
export function* runningRules(
  rules: readonly CheckedRule[],
  input: RunInput,
  tracer: RuleTracer,
  budget: StepBudget,
): Slices<readonly FieldOutcome[]> {
  const fields = new Map<string, FieldValue>();
  const inputs = new CompileInputs(input, fields, tracer);
  const outcomes: FieldOutcome[] = [];
  for (const checked of rules) {
    const { rule } = checked;
    const { result, from } = resultOf(checked, input, budget, () =>
      new Evaluation(rule.field, inputs, tracer, budget).evaluate(checked.ast),
    );
    const node = tracer.field(rule, result, from?.node);
    fields.set(rule.field, { value: result.status === 'value' ? from?.value : undefined, node });
    outcomes.push({ rule, result, node });
    yield;
  }
  return outcomes;
}

/** As JSON, for the payload, with an object for each element: as much as eight lists of its values. */
const copiesOfResult = 8;

interface Result {
  readonly result: FieldResult;
  readonly from: (Pick<Traced, 'node'> & Partial<Traced>) | undefined;
}

function resultOf(
  { rule }: CheckedRule,
  { product, item, issuedAt }: RunInput,
  budget: StepBudget,
  evaluate: () => Traced,
): Result {
  if (!rule.categories.includes(product.category))
    return outOfScope(`not asked for in category ${product.category}`);
  if (rule.granularity === 'item' && item === null)
    return outOfScope('belongs to the individual battery, not to the model');
  const isEarly = issuedAt.slice(0, 10) < rule.inForceFrom;
  const notYet: FieldResult = { status: 'not_yet_in_force', from: rule.inForceFrom, article: rule.article };
  if (isEarly && rule.early === 'withhold') return { result: notYet, from: undefined };
  try {
    const from = evaluate();
    budget.spend(rule.field, costOf(from.value) * copiesOfResult);
    return { result: { status: 'value', value: json(rule, from) }, from };
  } catch (error) {
    if (!(error instanceof EvaluationFailure) || error.code !== 'FACT_MISSING') throw error;
    const from = error.node === undefined ? undefined : { node: error.node };
    if (isEarly) return { result: notYet, from };
    if (rule.onMissing === 'fail') throw error;
    return { result: { status: 'undetermined', reason: rule.reason ?? missingFact }, from };
  }
}

/** Not which one: what a rule reads can depend on facts that the reader may not see. */
const missingFact = 'a fact that this field is computed from is missing';

const outOfScope = (reason: string): Result => ({
  result: { status: 'out_of_scope', reason },
  from: undefined,
});

function json(rule: Rule, { value }: Traced): Json {
  try {
    return valueToJson(value);
  } catch (error) {
    if (!(error instanceof CompileError)) throw error;
    throw new CompileError(error.code, `rule ${rule.field}: ${error.message}`, { rule: rule.field });
  }
}

/** The rules for items, and what they read, also indirectly. */
export function itemRules({ rules }: CheckedRules): readonly CheckedRule[] {
  const byField = new Map(rules.map((each) => [each.rule.field, each]));
  const wanted = new Set<string>();
  const want = (field: string): void => {
    if (wanted.has(field)) return;
    wanted.add(field);
    byField.get(field)?.reads.forEach(want);
  };
  for (const { rule } of rules) if (rule.granularity === 'item') want(rule.field);
  return rules.filter(({ rule }) => wanted.has(rule.field));
}
