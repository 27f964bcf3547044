import { canonical } from './canonical.ts';
import { CompileError } from './errors.ts';
import { nodeHash } from './proof.ts';
import { budgetOfCompile, type StepBudget } from './rules/budget.ts';
import { type CheckedRule, checkRules } from './rules/check.ts';
import { type ListVariable, lists, type Namespace, sheetColumns } from './rules/environment.ts';
import { Evaluation, EvaluationFailure, type Inputs, type Traced } from './rules/evaluate.ts';
import { noTrace } from './rules/run.ts';
import { fromJson, recordFrom, valueToJson } from './rules/values.ts';
import type { Hash, Json, JsonObject, Mismatch, Proof, ProofNode, RulePackage } from './types.ts';

/**
 * Computes fields again from the facts in the proof, with the published rules: a reader who does not trust the compiler's
 * arithmetic needs not. Fields whose derivation the reader sees only in part cannot be computed and are not counted.
 */
export function recompute(
  rules: RulePackage,
  proof: Proof,
): { readonly mismatches: readonly Mismatch[]; readonly recomputed: number } {
  const checked = checkRules(rules);
  if (!checked.ok) {
    const message = checked.problems[0]?.message ?? 'has problems';
    return { mismatches: [{ part: 'rules', at: '', message }], recomputed: 0 };
  }
  const nodes = new Map(proof.nodes.map((node) => [nodeHash(node), node]));
  const types = new Map(rules.rules.map(({ field, type }) => [field, type]));
  const budget = budgetOfCompile();
  let recomputed = 0;
  const mismatches = checked.rules.rules.flatMap((rule): readonly Mismatch[] => {
    const hash = proof.fields[rule.rule.field];
    const node = hash === undefined ? undefined : nodes.get(hash);
    const leaves = node && leavesOf(node, nodes);
    if (!node || !leaves || (node.data.result as JsonObject).status !== 'value') return [];
    recomputed++;
    const message = problemOf(rule, node, new ProofInputs(leaves, nodes, types), budget);
    return message === undefined ? [] : [{ part: 'proof', at: `/fields/${rule.rule.field}`, message }];
  });
  return { mismatches, recomputed };
}

function problemOf(
  { rule, ast }: CheckedRule,
  node: ProofNode,
  inputs: Inputs,
  budget: StepBudget,
): string | undefined {
  if (node.data.expression !== rule.expression || node.data.point !== rule.point)
    return 'was derived with another rule than the published one';
  try {
    const { value } = new Evaluation(rule.field, inputs, noTrace, budget).evaluate(ast);
    const again = canonical(valueToJson(value));
    const stored = canonical((node.data.result as JsonObject).value as Json);
    return again === stored
      ? undefined
      : `computed again from its facts it is ${again}, and the passport says ${stored}`;
  } catch (error) {
    if (!(error instanceof EvaluationFailure || error instanceof CompileError)) throw error;
    return `cannot be computed again: ${error.message}`;
  }
}

/** Everything that a field was computed from; undefined if a part is withheld. Other fields are not looked into. */
function leavesOf(field: ProofNode, nodes: ReadonlyMap<Hash, ProofNode>): readonly ProofNode[] | undefined {
  const seen = new Set<Hash>();
  const leaves: ProofNode[] = [];
  const pending = [...field.children_hashes];
  for (let hash = pending.pop(); hash !== undefined; hash = pending.pop()) {
    if (seen.has(hash)) continue;
    seen.add(hash);
    const node = nodes.get(hash);
    if (!node) return undefined;
    leaves.push(node);
    if (node.type === 'expr') for (const child of node.children_hashes) pending.push(child);
  }
  return leaves;
}

/** Facts, product, item and fields as the nodes of a derivation give them. */
class ProofInputs implements Inputs {
  readonly #byId: ReadonlyMap<string, ProofNode>;
  readonly #nodes: ReadonlyMap<Hash, ProofNode>;
  readonly #types: ReadonlyMap<string, string>;

  constructor(
    leaves: readonly ProofNode[],
    nodes: ReadonlyMap<Hash, ProofNode>,
    types: ReadonlyMap<string, string>,
  ) {
    this.#byId = new Map(leaves.map((node) => [`${node.type} ${node.id}`, node]));
    this.#nodes = nodes;
    this.#types = types;
  }

  list(name: ListVariable): Traced | undefined {
    const elements = (this.#byId.get(`expr ${name}`)?.children_hashes ?? []).flatMap(
      (hash): readonly Traced[] => {
        const value = recordFrom(lists[name], (this.#nodes.get(hash)?.data.payload ?? {}) as JsonObject);
        return value ? [{ value, node: undefined }] : [];
      },
    );
    return elements.length === 0
      ? undefined
      : { value: elements.map(({ value }) => value), node: undefined, elements };
  }

  read(namespace: Namespace, name: string): Traced | undefined {
    const value = this.#value(namespace, name);
    return value === undefined ? undefined : { value, node: undefined };
  }

  #value(namespace: Namespace, name: string): ReturnType<typeof fromJson> {
    if (namespace === 'sheet') {
      const payload = this.#byId.get(`fact attribute:${name}`)?.data.payload as JsonObject | undefined;
      return fromJson(sheetColumns[name] ?? '', payload?.value);
    }
    if (namespace === 'fields') {
      const result = this.#byId.get(`field ${name}`)?.data.result as JsonObject | undefined;
      return fromJson(this.#types.get(name) ?? '', result?.value);
    }
    return fromJson('string', this.#byId.get(`input ${namespace}.${name}`)?.data.value);
  }

  absent(): undefined {
    return undefined;
  }

  absentList(): undefined {
    return undefined;
  }
}
