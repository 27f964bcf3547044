import { CompileError } from '../errors.ts';
import {
  add,
  compare,
  type Division,
  divide,
  mostScale,
  multiply,
  negate,
  parseDecimal,
  Quantity,
  quantity,
  round,
  shares,
  subtract,
} from '../quantity.ts';
import { products, productType, quotientType, units } from '../units.ts';
import { equals, isList, type Value } from './values.ts';

/*
 * Functions and operators that rules may use, besides those of CEL: once as signatures for the type checker, once as code.
 * The checker has seen every call, so that the code may rely on the types of its arguments.
 */

/** `returns` is the type that the checker found: the sum of no masses is 0 kg. */
export type RuleFunction = (args: readonly Value[], returns: string) => Value;

const asQuantity = (value: Value | undefined): Quantity => {
  if (value instanceof Quantity) return value;
  if (typeof value === 'bigint') return quantity('Number', value, 0);
  throw new Error('the checker let something through that is no number');
};
const asQuantities = (value: Value | undefined): readonly Quantity[] =>
  value !== undefined && isList(value) ? value.map(asQuantity) : [];
const asStrings = (value: Value | undefined): readonly string[] =>
  value !== undefined && isList(value) ? value.map(String) : [];

function digitsOf(value: Value | undefined): number {
  if (typeof value === 'bigint' && value >= 0n && value <= BigInt(mostScale)) return Number(value);
  throw new CompileError('VALIDATION_ERROR', `digits must be from 0 to ${mostScale}, not ${String(value)}`);
}

/** Apart from the others, because the proof keeps numerator and denominator. */
export function division(args: readonly Value[], returns: string): Division {
  return divide(returns, asQuantity(args[0]), asQuantity(args[1]), digitsOf(args[2]));
}

export const functions: Readonly<Record<string, RuleFunction>> = {
  div: (args, returns) => division(args, returns).result,
  round: ([value, digits]) => round(asQuantity(value), digitsOf(digits)),
  sum: ([list], returns) => asQuantities(list).reduce(add, quantity(returns, 0n, 0)),
  min: ([list]) => extreme(asQuantities(list), -1),
  max: ([list]) => extreme(asQuantities(list), 1),
  shares: ([list, digits]) => shares(asQuantities(list), digitsOf(digits)),
  percentOf: ([share, whole]) => {
    const [percent, value] = [asQuantity(share), asQuantity(whole)];
    return quantity(value.type, percent.value * value.value, percent.scale + value.scale + 2);
  },
  percent: ([value]) => {
    const ratio = asQuantity(value);
    return quantity('Percent', ratio.value * 100n, ratio.scale);
  },
  number: ([value]) => asQuantity(value),
  count: ([value]) => quantity('Number', asQuantity(value).value, asQuantity(value).scale),
  kWh: ([value]) => quantity('KWh', asQuantity(value).value, asQuantity(value).scale + 3),
  wh: ([value]) => quantity('Wh', asQuantity(value).value * 1000n, asQuantity(value).scale),
  distinct: ([list]) => [...new Set(asStrings(list))],
  flatten: ([lists]) => (lists !== undefined && isList(lists) ? lists.flatMap(asStrings) : []),
};

function extreme(list: readonly Quantity[], sign: 1 | -1): Quantity {
  const [first, ...others] = list;
  if (!first)
    throw new CompileError('FACT_MISSING', 'the smallest or largest of an empty list does not exist');
  return others.reduce((best, each) => (Math.sign(compare(each, best)) === sign ? each : best), first);
}

/** `Kg("12.5")`: how a rule writes a figure of its own. */
export function literal(type: string, text: Value | undefined): Quantity {
  const parsed = typeof text === 'string' ? parseDecimal(type, text) : undefined;
  if (parsed) return parsed;
  throw new CompileError(
    'VALIDATION_ERROR',
    `${type}("${String(text)}") is no decimal; write ${type}("12.5")`,
  );
}

/** Operators on quantities; both sides are known to fit. */
export function operate(operator: string, left: Value, right: Value): Value | undefined {
  if (!(left instanceof Quantity || right instanceof Quantity)) return undefined;
  const [a, b] = [asQuantity(left), asQuantity(right)];
  switch (operator) {
    case '+':
      return add(a, b);
    case '-':
      return subtract(a, b);
    case '*':
      return multiply(productType(a.type, b.type) ?? a.type, a, b);
    case '<':
      return compare(a, b) < 0;
    case '<=':
      return compare(a, b) <= 0;
    case '>':
      return compare(a, b) > 0;
    case '>=':
      return compare(a, b) >= 0;
    default:
      return undefined;
  }
}

export interface Signature {
  readonly signature: string;
  readonly run: (...args: Value[]) => Value;
}

/** `Kg + Kg: Kg` and so on, for the checker. */
export function operatorSignatures(): readonly Signature[] {
  const run = (operator: string) => (left: Value, right: Value) => operate(operator, left, right) as Value;
  const same = units.flatMap(({ type }) => [
    ...['+', '-'].map((operator) => ({
      signature: `${type} ${operator} ${type}: ${type}`,
      run: run(operator),
    })),
    ...['<', '<=', '>', '>='].map((operator) => ({
      signature: `${type} ${operator} ${type}: bool`,
      run: run(operator),
    })),
    { signature: `${type} == ${type}: bool`, run: (left: Value, right: Value) => equals(left, right) },
    { signature: `-${type}: ${type}`, run: (value: Value) => negate(asQuantity(value)) },
    { signature: `${type} * int: ${type}`, run: run('*') },
    { signature: `int * ${type}: ${type}`, run: run('*') },
  ]);
  const different = products.map(([left, right, product]) => ({
    signature: `${left} * ${right}: ${product}`,
    run: run('*'),
  }));
  return [...same, ...different];
}

/** `div(Kg, KWh, int): Kg_per_KWh` and so on, for the checker. */
export function functionSignatures(): readonly Signature[] {
  const all = units.map(({ type }) => type);
  const lists = ['sum', 'min', 'max'].flatMap((name) =>
    all.map((type) => [name, `${name}(list<${type}>)`, type] as const),
  );
  const quotients = all.flatMap((left) =>
    all.flatMap((right) => {
      const quotient = quotientType(left, right);
      return quotient === undefined ? [] : [['div', `div(${left}, ${right}, int)`, quotient] as const];
    }),
  );
  const signatures: readonly (readonly [name: string, call: string, returns: string])[] = [
    ...quotients,
    ...all.map((type) => ['div', `div(${type}, int, int)`, type] as const),
    ['div', 'div(int, int, int)', 'Number'],
    ...lists,
    ...all.map((type) => ['round', `round(${type}, int)`, type] as const),
    ...all.map((type) => ['shares', `shares(list<${type}>, int)`, 'list<Percent>'] as const),
    ...all.map((type) => ['percentOf', `percentOf(Percent, ${type})`, type] as const),
    ['percent', 'percent(Number)', 'Percent'],
    ['number', 'number(int)', 'Number'],
    ['count', 'count(Cycle)', 'Number'],
    ['kWh', 'kWh(Wh)', 'KWh'],
    ['wh', 'wh(KWh)', 'Wh'],
    ['distinct', 'distinct(list<string>)', 'list<string>'],
    ['flatten', 'flatten(list<list<string>>)', 'list<string>'],
  ];
  return [
    ...signatures.map(([name, call, returns]) => ({
      signature: `${call}: ${returns}`,
      run: (...args: Value[]) => (functions[name] as RuleFunction)(args, returns),
    })),
    ...all.map((type) => ({
      signature: `${type}(string): ${type}`,
      run: (text: Value) => literal(type, text),
    })),
  ];
}
