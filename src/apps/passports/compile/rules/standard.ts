import { CompileError } from '../errors.ts';
import type { ListVariable, Namespace } from './environment.ts';
import { operate } from './functions.ts';
import { equals, isList, type Value } from './values.ts';

/* Operators and functions of CEL itself, as the library does them, and what to say when a fact is missing. */

export const documentOf: Readonly<Record<ListVariable, string>> = {
  materials: 'bill of materials',
  footprint: 'carbon footprint',
  diligence: 'due diligence document',
};

export const missing = (namespace: Namespace, name: string): string => {
  if (namespace === 'fields') return `field ${name} has no value, so that nothing can be computed from it`;
  if (namespace === 'item') return `there is no item: this rule is about one battery, not about the model`;
  return `no document gives ${name}; upload a data sheet with a row ${name}, or let the rule be undetermined`;
};

const [smallest, largest] = [-(2n ** 63n), 2n ** 63n - 1n];

/** Operators of CEL on what is no quantity, as the library does them. */
export function compareOrCombine(op: string, a: Value, b: Value): Value {
  if (op === '==') return equals(a, b);
  if (op === '!=') return !equals(a, b);
  if (op === 'in') return isList(b) && b.some((each) => equals(a, each));
  const result = operate(op, a, b);
  if (result !== undefined) return result;
  if (op === '<') return a < b;
  if (op === '<=') return a <= b;
  if (op === '>') return a > b;
  if (op === '>=') return a >= b;
  if (typeof a === 'bigint' && typeof b === 'bigint')
    return int64(op === '+' ? a + b : op === '-' ? a - b : a * b);
  if (isList(a) && isList(b)) return [...a, ...b];
  return `${String(a)}${String(b)}`;
}

function int64(value: bigint): bigint {
  if (value >= smallest && value <= largest) return value;
  throw new CompileError(
    'VALIDATION_ERROR',
    `${value} is beyond 64 bits; use number() for numbers of any size`,
  );
}

/** Of CEL's own functions those that mean the same everywhere. */
export function standard(name: string, [first, second]: readonly Value[]): Value | undefined {
  if (name === 'size' && first !== undefined)
    return BigInt(typeof first === 'string' ? [...first].length : isList(first) ? first.length : 0);
  if (
    name === 'string' &&
    (typeof first === 'string' || typeof first === 'bigint' || typeof first === 'boolean')
  )
    return String(first);
  if (name === 'join' && first !== undefined && isList(first)) return first.join(String(second ?? ''));
  if (typeof first !== 'string' || typeof second !== 'string') return undefined;
  if (name === 'contains') return first.includes(second);
  if (name === 'startsWith') return first.startsWith(second);
  if (name === 'endsWith') return first.endsWith(second);
  return undefined;
}

export const standardFunctions = ['size', 'string', 'join', 'contains', 'startsWith', 'endsWith', 'has'];
