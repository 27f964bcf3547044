import type { ParseError, TypeError as TypeMismatch } from '@marcbachmann/cel-js';
import { attributes } from '../attributes.ts';
import type { RuleProblem } from '../types.ts';
import { unitNamed } from '../units.ts';
import { checkedType, childrenOf, type Node } from './ast.ts';
import { elementType } from './values.ts';

interface Explanation {
  readonly code: RuleProblem['code'];
  readonly sentence: string;
  readonly range?: { readonly start: number; readonly end: number } | undefined;
}

const baseType = (type: string): string => elementType(type) ?? type;
const isUnit = (type: string): boolean => unitNamed(baseType(type)) !== undefined;
/** An integer beside a unit is a unit that was forgotten. */
const isNumeric = (type: string): boolean => isUnit(type) || baseType(type) === 'int';
const what = (type: string): string => {
  const unit = unitNamed(baseType(type));
  const one = unit ? `${type} (${unit.what})` : type;
  return one;
};

/** Turns an error of the checker into a sentence that says what to write instead. */
function explainError(error: TypeMismatch | ParseError): Explanation {
  const node = error.node as Node | undefined;
  const types = (node && 'op' in node && node.op !== undefined ? childrenOf(node) : []).map(
    (child) => checkedType(child)?.name ?? '?',
  );
  const range = node ? { start: node.start, end: node.end } : error.range;
  const units = types.some(isUnit) && types.every(isNumeric);
  if (error.code === 'no_such_overload' && units && types.length === 2)
    return { code: 'UNIT_MISMATCH', sentence: operatorSentence(node?.op ?? '', types), range };
  if (error.code === 'no_matching_overload' && units)
    return { code: 'UNIT_MISMATCH', sentence: callSentence(node, types), range };
  if (error.code === 'incompatible_ternary_branches' && types.slice(1).every(isNumeric) && types.some(isUnit))
    return {
      code: 'UNIT_MISMATCH',
      sentence: `both results of a condition need one unit, and these are ${what(types[1] ?? '')} and ${what(types[2] ?? '')}`,
      range,
    };
  if (error.code === 'heterogeneous_list_element')
    return {
      code: /'(\w+)' but found '(\w+)'/.exec(error.summary)?.slice(1).every(isNumeric)
        ? 'UNIT_MISMATCH'
        : 'RULE_TYPE_ERROR',
      sentence: error.summary,
      range,
    };
  if (error.code === 'no_such_key')
    return { code: 'RULE_TYPE_ERROR', sentence: keySentence(error.summary), range };
  return { code: 'RULE_TYPE_ERROR', sentence: error.summary, range };
}

function operatorSentence(op: string, [left = '', right = '']: readonly string[]): string {
  const sides = `${left} ${op} ${right}: the left side is ${what(left)}, the right side ${what(right)}`;
  if (op === '*') return `${sides}, and there is no type for their product`;
  const number = [left, right].find((type) => type === 'int');
  const other = left === 'int' ? right : left;
  if (number) return `${sides}. Give the number its unit: ${baseType(other)}("1")`;
  return `${sides}. ${op} needs the same unit on both sides; to relate two units, write div(a, b, digits)`;
}

function callSentence(node: Node | undefined, types: readonly string[]): string {
  const name = node?.op === 'call' || node?.op === 'rcall' ? node.args[0] : '';
  const call = `${name}(${types.join(', ')})`;
  if (name === 'div' && types.length === 2)
    return `${call} lacks the number of digits: div(a, b, 3) rounds half to even to 3 digits`;
  if (name === 'div') return `${call}: there is no type for ${types[0]} divided by ${types[1]}`;
  return `${call} does not fit: ${types.map(what).join(', ')}`;
}

function keySentence(summary: string): string {
  const name = summary.replace('No such key: ', '');
  const near = attributes.map((each) => each.name).find((each) => each.toLowerCase() === name.toLowerCase());
  return `there is no ${name} here${near ? `; did you mean ${near}?` : '; see the list of attributes, or the rules that the package has'}`;
}

/** What is wrong with the type that a rule says it has; undefined if nothing is. */
function explainDeclared(declared: string, actual: string): Explanation | undefined {
  // An empty list fits every list.
  if (declared === actual || (actual === 'list<T>' && declared.startsWith('list<'))) return undefined;
  const code = isNumeric(declared) && isNumeric(actual) ? 'UNIT_MISMATCH' : 'RULE_TYPE_ERROR';
  return {
    code,
    sentence: `the rule says that it gives ${what(declared)}, and its expression gives ${what(actual)}`,
  };
}

export const explain = Object.assign(explainError, { declared: explainDeclared });
