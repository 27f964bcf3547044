import { canonical } from '../canonical.ts';
import { CompileError } from '../errors.ts';
import {
  accessPoints,
  categories,
  type Json,
  type Rule,
  type RulePackage,
  type RuleProblem,
} from '../types.ts';
import { unitNamed } from '../units.ts';
import { elementType, recordTypes } from './values.ts';

/** Bounds for what one package may hold: rules, characters of an expression, test cases, facts of a test case. */
export const most = { rules: 500, expression: 4000, testCases: 200, facts: 10_000 };

const identifier = /^[a-z][A-Za-z0-9]{0,63}$/;

/** What is wrong with a package before one looks at its expressions. */
export function shapeProblems({ id, version, rules, testCases }: RulePackage): readonly RuleProblem[] {
  const problems: RuleProblem[] = [];
  const say = (rule: string | null, message: string): void => {
    problems.push({
      code: 'VALIDATION_ERROR',
      rule,
      position: null,
      message: rule === null ? message : `rule ${rule}: ${message}`,
    });
  };
  if (!/^[A-Za-z0-9._-]{1,64}$/.test(id))
    say(null, `the id "${id}" may have letters, digits, dot, hyphen and underscore`);
  if (!/^\d+\.\d+\.\d+$/.test(version))
    say(null, `the version "${version}" must have three numbers, as in 1.0.0`);
  if (rules.length === 0) say(null, 'the package has no rules');
  if (rules.length > most.rules)
    say(null, `the package has ${rules.length} rules; ${most.rules} are allowed`);
  if (testCases.length > most.testCases)
    say(null, `the package has ${testCases.length} test cases; ${most.testCases} are allowed`);
  const seen = new Set<string>();
  for (const rule of rules) {
    if (seen.has(rule.field)) say(rule.field, 'another rule has this field, too');
    seen.add(rule.field);
    for (const message of ruleProblems(rule)) say(rule.field, message);
  }
  for (const { name, expect } of testCases) {
    const fields = Object.keys(expect);
    if (fields.length === 0)
      say(
        null,
        `test case "${name}" expects nothing, so it would pass whatever the rules give: name at least one field in "expect" ` +
          'and what it gives, such as {"mass": {"error": "FACT_MISSING"}}, or remove the case',
      );
    for (const field of fields)
      if (!seen.has(field)) say(null, `test case "${name}" expects ${field}, for which there is no rule`);
  }
  try {
    canonical({ rules, testCases } as unknown as Json);
  } catch (error) {
    if (!(error instanceof CompileError)) throw error;
    say(null, `the package cannot be hashed: ${error.message}`);
  }
  return problems;
}

function* ruleProblems(rule: Rule): Generator<string> {
  if (!identifier.test(rule.field))
    yield 'a field has ASCII letters and digits and begins with a small letter, as in ratedCapacity';
  if (rule.expression.length > most.expression)
    yield `the expression is longer than ${most.expression} characters`;
  if (!isResultType(rule.type))
    yield `there is no type "${rule.type}"; a rule gives string, bool, int, a unit (Kg), Material, or a list of these`;
  if (!accessPoints.includes(rule.point)) yield 'the access point is 1, 2, 3 or 4';
  if (rule.categories.length === 0 || rule.categories.some((each) => !categories.includes(each)))
    yield `categories are some of ${categories.join(', ')}`;
  if (!isDate(rule.inForceFrom)) yield `inForceFrom "${rule.inForceFrom}" is no date YYYY-MM-DD`;
  if (!['model', 'item'].includes(rule.granularity)) yield 'granularity is model or item';
  if (!['publish', 'withhold'].includes(rule.early)) yield 'early is publish or withhold';
  if (!['fail', 'undetermined'].includes(rule.onMissing)) yield 'onMissing is fail or undetermined';
}

function isResultType(type: string): boolean {
  const base = elementType(type) ?? type;
  return (
    ['string', 'bool', 'int'].includes(base) ||
    Object.hasOwn(recordTypes, base) ||
    unitNamed(base) !== undefined
  );
}

/** A day that the calendar has. No Date: its parser differs between platforms. */
export function isDate(text: string): boolean {
  const [, year, month, day] = (/^(\d{4})-(\d{2})-(\d{2})$/.exec(text) ?? []).map(Number);
  if (year === undefined || month === undefined || day === undefined || month < 1 || month > 12) return false;
  const leap = year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
  const days = [31, leap ? 29 : 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][month - 1] ?? 0;
  return day >= 1 && day <= days;
}
