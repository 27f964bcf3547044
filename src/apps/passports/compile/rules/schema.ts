import { z } from 'zod';
import { batteryStatuses, categories, factTypes, type RulePackage, type RuleProblem } from '../types.ts';
import { most } from './shape.ts';

/*
 * The shape of a rule package that comes from outside: a file, a request, a bundle. What its parts mean is checked by
 * `checkRules`.
 *
 * What is wrong is bounded: each problem takes memory and time, and a package of 2 MB has room for millions. So every list
 * has a limit, and what repeats within a test case is checked up to the first that is wrong.
 */

const text = z.string();
/** Any: what is parsed from JSON has nothing else. */
const json = z.unknown();
const category = z.enum(categories as [string, ...string[]]);

const rule = z.strictObject({
  field: text,
  expression: text,
  type: text,
  point: z.union([z.literal(1), z.literal(2), z.literal(3), z.literal(4)]),
  granularity: z.enum(['model', 'item']),
  categories: z.array(category).max(2 * categories.length),
  inForceFrom: text,
  early: z.enum(['publish', 'withhold']),
  onMissing: z.enum(['fail', 'undetermined']),
  article: text,
  reason: text.optional(),
});

const fact = z.strictObject({
  type: z.enum(factTypes as [string, ...string[]]),
  key: text,
  payload: z.record(text, json),
});

/** Notes the first thing that is wrong with the first entry that is. */
function firstProblem(
  entries: Iterable<readonly [key: string | number, value: unknown]>,
  shape: z.ZodType,
  context: z.RefinementCtx,
): void {
  for (const [key, value] of entries) {
    const [issue] = shape.safeParse(value).error?.issues ?? [];
    if (!issue) continue;
    context.addIssue({ code: 'custom', path: [key, ...issue.path], message: issue.message });
    return;
  }
}

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
  facts: z
    .array(z.unknown())
    .max(most.facts, { error: `at most ${most.facts} facts are allowed` })
    .superRefine((facts, context) => firstProblem(facts.entries(), fact, context)),
  // Counted before it is looked at: a record has no `max`.
  expect: json.superRefine((expect, context) => {
    const refuse = (message: string): void => context.addIssue({ code: 'custom', message });
    if (typeof expect !== 'object' || expect === null || Array.isArray(expect))
      return refuse('expected an object of fields');
    const { length } = Object.keys(expect);
    if (length > most.rules) return refuse(`names ${length} fields; ${most.rules} are allowed`);
    firstProblem(Object.entries(expect), z.record(text, json), context);
  }),
});

export const rulePackageShape = z.strictObject({
  id: text,
  version: text,
  rules: z.array(rule).max(most.rules, { error: `at most ${most.rules} rules are allowed` }),
  testCases: z
    .array(testCase)
    .max(most.testCases, { error: `at most ${most.testCases} test cases are allowed` }),
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
