import { ParseError, TypeError as TypeMismatch } from '@marcbachmann/cel-js';
import { hashJson } from '../canonical.ts';
import { CompileError } from '../errors.ts';
import type { Hash, Json, Rule, RulePackage, RuleProblem } from '../types.ts';
import { checkedType, type Node, positionOf, walk } from './ast.ts';
import { environmentFor } from './environment.ts';
import { explain } from './explain.ts';
import { orderOf } from './order.ts';
import { refused } from './refused.ts';
import { shapeProblems } from './shape.ts';
import { atOnce, type Slices } from './slices.ts';

/*
 * Checks a package before anything is compiled with it: shape, syntax, types and units, dependencies. All problems are
 * reported at once, each with its rule, its place and a sentence that says what to write instead.
 */

export interface CheckedRule {
  readonly rule: Rule;
  readonly ast: Node;
  /** Fields of other rules that it reads. */
  readonly reads: readonly string[];
}

/** What `compile` and `runTestCases` take. Keep it: checking takes longer than compiling. */
export interface CheckedRules {
  readonly package: RulePackage;
  readonly hash: Hash;
  /** In an order in which each rule comes after those that it reads. */
  readonly rules: readonly CheckedRule[];
}

export type CheckResult =
  | { readonly ok: true; readonly rules: CheckedRules }
  | { readonly ok: false; readonly problems: readonly RuleProblem[] };

/** Everything in the package counts, test cases too. */
export const rulesHash = (rules: RulePackage): Hash => hashJson(rules as unknown as Json);

export const checkRules = (rules: RulePackage): CheckResult => atOnce(checkingRules(rules));

/** As `checkRules`, and gives way after each rule. */
export function* checkingRules(rules: RulePackage): Slices<CheckResult> {
  const shape = shapeProblems(rules);
  if (shape.length > 0) return { ok: false, problems: shape };
  const environment = environmentFor(Object.fromEntries(rules.rules.map(({ field, type }) => [field, type])));
  const results: ReturnType<typeof checkRule>[] = [];
  for (const rule of rules.rules) {
    results.push(checkRule(rule, environment));
    yield;
  }
  const problems = results.flatMap((result) => ('problem' in result ? [result.problem] : []));
  if (problems.length > 0) return { ok: false, problems };
  const checked = results.flatMap((result) => ('ast' in result ? [result] : []));
  const ordered = orderOf(checked);
  if ('cycle' in ordered) return { ok: false, problems: [ordered.cycle] };
  return { ok: true, rules: { package: rules, hash: rulesHash(rules), rules: ordered.rules } };
}

/** As `checkRules`, for those who take a package with problems for an error. */
export const mustCheck = (rules: RulePackage): CheckedRules => atOnce(mustBeChecking(rules));

export function* mustBeChecking(rules: RulePackage): Slices<CheckedRules> {
  const result = yield* checkingRules(rules);
  if (result.ok) return result.rules;
  const [first] = result.problems;
  throw new CompileError(first?.code ?? 'VALIDATION_ERROR', first?.message ?? 'the rules have problems', {
    problems: result.problems,
  });
}

function checkRule(
  rule: Rule,
  environment: ReturnType<typeof environmentFor>,
): CheckedRule | { readonly problem: RuleProblem } {
  const { field, expression } = rule;
  const problem = (
    code: RuleProblem['code'],
    range: { readonly start: number; readonly end: number },
    sentence: string,
  ): { readonly problem: RuleProblem } => {
    const position = positionOf(expression, range);
    const message = `rule ${field}, line ${position.line}, column ${position.column}: ${sentence}`;
    return { problem: { code, rule: field, position, message } };
  };
  const whole = { start: 0, end: expression.length };
  try {
    const parsed = environment.parse(expression);
    const forbidden = refused(parsed.ast);
    if (forbidden) return problem('RULE_TYPE_ERROR', forbidden.node, forbidden.sentence);
    const { valid, type, error } = parsed.check();
    if (!valid) {
      if (!(error instanceof TypeMismatch || error instanceof ParseError)) throw error;
      const { code, sentence, range } = explain(error);
      return problem(code, range ?? whole, sentence);
    }
    for (const node of walk(parsed.ast))
      if (checkedType(node)?.hasDynType)
        return problem('RULE_TYPE_ERROR', node, 'the type of this part is not known before it runs (dyn)');
    const declared = explain.declared(rule.type, type ?? '');
    if (declared) return problem(declared.code, whole, declared.sentence);
    return { rule, ast: parsed.ast, reads: fieldsRead(parsed.ast) };
  } catch (error) {
    if (!(error instanceof ParseError)) throw error;
    return problem('RULE_PARSE_ERROR', error.range ?? whole, `cannot be read: ${error.summary}`);
  }
}

function fieldsRead(ast: Node): readonly string[] {
  const names = new Set<string>();
  for (const node of walk(ast))
    if (node.op === '.' && node.args[0].op === 'id' && node.args[0].args === 'fields')
      names.add(node.args[1]);
  return [...names].sort();
}
