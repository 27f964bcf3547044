import type { RuleProblem } from '../types.ts';
import type { CheckedRule } from './check.ts';

/** Each rule after those that it reads; of rules that do not read each other, the package's order stays. */
export function orderOf(
  rules: readonly CheckedRule[],
): { readonly rules: readonly CheckedRule[] } | { readonly cycle: RuleProblem } {
  const byField = new Map(rules.map((each) => [each.rule.field, each]));
  const done = new Set<string>();
  const ordered: CheckedRule[] = [];
  for (const start of rules) {
    const cycle = visit(start, []);
    if (cycle) return { cycle: cycleProblem(cycle) };
  }
  return { rules: ordered };

  function visit(each: CheckedRule, path: readonly string[]): readonly string[] | undefined {
    const { field } = each.rule;
    if (done.has(field)) return undefined;
    if (path.includes(field)) return [...path.slice(path.indexOf(field)), field];
    for (const name of each.reads) {
      const next = byField.get(name);
      const cycle = next && visit(next, [...path, field]);
      if (cycle) return cycle;
    }
    done.add(field);
    ordered.push(each);
    return undefined;
  }
}

function cycleProblem(path: readonly string[]): RuleProblem {
  return {
    code: 'RULE_CYCLE_DETECTED',
    rule: path[0] ?? null,
    position: null,
    message: `rules read each other in a circle: ${path.join(' → ')}. Compute one of them from facts instead`,
    path,
  };
}
