import { CompileError } from './errors.ts';
import type { QuantityJson } from './types.ts';
import { unitNamed, units } from './units.ts';

/*
 * Exact numbers (BPC-7): an integer and a scale, in a unit. 12.50 is { value: 1250n, scale: 2 }. Sums, differences and
 * products are exact; a quotient is rounded half to even, to as many digits as the rule says.
 */

/** More digits than anything that is measured; a rule that multiplies on and on stops here. */
const mostDigits = 200;
export const mostScale = 18;

export class Quantity {
  /** The unit's type: on the prototype of a class for each unit, as the CEL library tells types by constructors. */
  declare readonly type: string;
  readonly value: bigint;
  readonly scale: number;

  constructor(value: bigint, scale: number) {
    this.value = value;
    this.scale = scale;
  }
}

type QuantityClass = new (value: bigint, scale: number) => Quantity;

const classes: ReadonlyMap<string, QuantityClass> = new Map(
  units.map(({ type }) => {
    const Of = class extends Quantity {};
    Object.defineProperty(Of, 'name', { value: type });
    Object.defineProperty(Of.prototype, 'type', { value: type });
    return [type, Of];
  }),
);

export function quantityClass(type: string): QuantityClass {
  const found = classes.get(type);
  if (!found) throw new Error(`there is no unit ${type}`);
  return found;
}

const limit = 10n ** BigInt(mostDigits);

export function quantity(type: string, value: bigint, scale: number): Quantity {
  if (value >= limit || value <= -limit)
    throw new CompileError('VALIDATION_ERROR', `a number has more than ${mostDigits} digits`);
  // A product of small numbers, or of 0, has few digits and doubles its scale: 10 to the power of that takes all memory.
  if (scale > mostDigits)
    throw new CompileError(
      'VALIDATION_ERROR',
      `a number has more than ${mostDigits} decimals; round it with round(value, digits)`,
    );
  return new (quantityClass(type))(value, scale);
}

const power = (digits: number): bigint => 10n ** BigInt(digits);

/** The integer that stands for the number at a scale that is not smaller than its own. */
const at = ({ value, scale }: Quantity, wanted: number): bigint => value * power(wanted - scale);

export function add(a: Quantity, b: Quantity): Quantity {
  const scale = Math.max(a.scale, b.scale);
  return quantity(a.type, at(a, scale) + at(b, scale), scale);
}

export function subtract(a: Quantity, b: Quantity): Quantity {
  const scale = Math.max(a.scale, b.scale);
  return quantity(a.type, at(a, scale) - at(b, scale), scale);
}

export const multiply = (type: string, a: Quantity, b: Quantity): Quantity =>
  quantity(type, a.value * b.value, a.scale + b.scale);

export const negate = (a: Quantity): Quantity => quantity(a.type, -a.value, a.scale);

export function compare(a: Quantity, b: Quantity): number {
  const scale = Math.max(a.scale, b.scale);
  const [left, right] = [at(a, scale), at(b, scale)];
  return left < right ? -1 : left > right ? 1 : 0;
}

/** The two integers whose quotient, rounded, is the result's value: they go into the proof. */
export interface Division {
  readonly result: Quantity;
  readonly numerator: bigint;
  readonly denominator: bigint;
}

export function divide(type: string, a: Quantity, b: Quantity, digits: number): Division {
  checkDigits(digits);
  if (b.value === 0n) throw new CompileError('DIVISION_BY_ZERO', 'the divisor is 0');
  const numerator = a.value * power(b.scale + digits);
  const denominator = b.value * power(a.scale);
  return { result: quantity(type, halfEven(numerator, denominator), digits), numerator, denominator };
}

/** Fewer digits: half to even. More digits: zeros. */
export function round(a: Quantity, digits: number): Quantity {
  checkDigits(digits);
  const value = digits >= a.scale ? at(a, digits) : halfEven(a.value, power(a.scale - digits));
  return quantity(a.type, value, digits);
}

export function halfEven(numerator: bigint, denominator: bigint): bigint {
  const [n, d] = denominator < 0n ? [-numerator, -denominator] : [numerator, denominator];
  const down = n / d - (n % d !== 0n && n < 0n ? 1n : 0n);
  const twice = 2n * (n - down * d);
  if (twice > d || (twice === d && down % 2n !== 0n)) return down + 1n;
  return down;
}

/**
 * Shares in per cent that add up to exactly 100: each is rounded down, and what is missing goes to those that lost most,
 * of equals to the first.
 */
export function shares(parts: readonly Quantity[], digits: number): readonly Quantity[] {
  checkDigits(digits);
  const scale = Math.max(0, ...parts.map((part) => part.scale));
  const values = parts.map((part) => at(part, scale));
  if (values.some((value) => value < 0n))
    throw new CompileError('VALIDATION_ERROR', 'shares() needs parts that are not negative');
  const total = values.reduce((sum, value) => sum + value, 0n);
  if (total === 0n) throw new CompileError('DIVISION_BY_ZERO', 'shares() of parts that add up to 0');
  const whole = 100n * power(digits);
  const exact = values.map((value) => value * whole);
  const down = exact.map((value) => value / total);
  const missing = Number(whole - down.reduce((sum, value) => sum + value, 0n));
  const losers = exact
    .map((value, index) => ({ lost: value % total, index }))
    .sort((a, b) => (a.lost === b.lost ? a.index - b.index : a.lost > b.lost ? -1 : 1))
    .slice(0, missing);
  const raised = new Set(losers.map(({ index }) => index));
  return down.map((value, index) => quantity('Percent', raised.has(index) ? value + 1n : value, digits));
}

function checkDigits(digits: number): void {
  if (!Number.isInteger(digits) || digits < 0 || digits > mostScale)
    throw new CompileError('VALIDATION_ERROR', `digits must be from 0 to ${mostScale}, not ${digits}`);
}

/** `12.50`, `-3`, with a point and without exponent, white space or separators. The shortest scale: 12.50 becomes 12.5. */
export function parseDecimal(type: string, text: string): Quantity | undefined {
  const [, sign, whole = '', fraction = ''] = /^(-?)(\d{1,30})(?:\.(\d{1,18}))?$/.exec(text) ?? [];
  if (whole === '') return undefined;
  const digits = fraction.replace(/0+$/, '');
  const value = BigInt(whole + digits);
  return quantity(type, sign === '-' ? -value : value, digits.length);
}

/** For payloads: integers that every reader of JSON holds exactly. */
export function toJson(a: Quantity): QuantityJson {
  const value = Number(a.value);
  if (!Number.isSafeInteger(value))
    throw new CompileError(
      'VALIDATION_ERROR',
      `${formatDecimal(a)} has too many digits for a passport; round it with round(value, digits)`,
    );
  return { value, scale: a.scale, unit: unitNamed(a.type)?.symbol ?? '' };
}

/** As people write it: 99.962. */
export function formatDecimal({ value, scale }: Pick<Quantity, 'value' | 'scale'>): string {
  if (scale === 0) return String(value);
  const digits = String(value < 0n ? -value : value).padStart(scale + 1, '0');
  return `${value < 0n ? '-' : ''}${digits.slice(0, -scale)}.${digits.slice(-scale)}`;
}
