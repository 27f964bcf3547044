import { z } from 'zod';
import { batteryStatuses, categories, factTypes, type RulePackage, type RuleProblem } from '../types.ts';

/*
 * The shape of a rule package that comes from outside: a file, a request, a bundle. What its parts mean is checked by
 * `checkRules`.
 */

const text = z.string();
const json = z.json();
const category = z.enum(categories as [string, ...string[]]);

const rule = z.strictObject({
  field: text,
  expression: text,
  type: text,
  point: z.union([z.literal(1), z.literal(2), z.literal(3), z.literal(4)]),
  granularity: z.enum(['model', 'item']),
  categories: z.array(category),
  inForceFrom: text,
  early: z.enum(['publish', 'withhold']),
  onMissing: z.enum(['fail', 'undetermined']),
  article: text,
  reason: text.optional(),
});

const testCase = z.strictObject({
  name: text,
  product: z.strictObject({
    id: text,
    name: text,
    category,
    gtin: text,
    manufacturer: text,
    manufacturerId: text,
  }),
  item: z
    .strictObject({
      serial: text,
      manufacturedOn: text,
      manufacturedAt: text,
      status: z.enum(batteryStatuses as [string, ...string[]]),
    })
    .nullable(),
  issuedAt: text,
  facts: z.array(
    z.strictObject({
      type: z.enum(factTypes as [string, ...string[]]),
      key: text,
      payload: z.record(text, json),
    }),
  ),
  expect: z.record(text, z.record(text, json)),
});

export const rulePackageShape = z.strictObject({
  id: text,
  version: text,
  rules: z.array(rule),
  testCases: z.array(testCase),
});

/** For packages as JSON: gives the package, or what is wrong with its shape and where. */
export function parseRulePackage(
  value: unknown,
):
  | { readonly ok: true; readonly package: RulePackage }
  | { readonly ok: false; readonly problems: readonly RuleProblem[] } {
  const { success, error } = rulePackageShape.safeParse(value);
  if (success) return { ok: true, package: value as RulePackage };
  const problems = error.issues.map(({ path, message }) => ({
    code: 'VALIDATION_ERROR' as const,
    rule: fieldAt(value, path),
    position: null,
    message: `/${path.join('/')}: ${message}`,
  }));
  return { ok: false, problems };
}

/** The field of the rule that a path leads into, if it has one that can be read. */
function fieldAt(value: unknown, [list, at]: readonly PropertyKey[]): string | null {
  if (list !== 'rules' || typeof at !== 'number') return null;
  const field = (value as { readonly rules: readonly { readonly field?: unknown }[] }).rules[at]?.field;
  return typeof field === 'string' ? field : null;
}
