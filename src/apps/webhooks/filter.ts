import { TallymanError } from '../../engine/errors.ts';

/** A value of JSON that a condition compares with. */
export type FilterValue = string | number | boolean | null;

/**
 * A condition on the payload of an event: a path, and one comparison. A text equals a text and a number a number, whatever
 * way it is written; the comparisons of order are for numbers.
 */
export interface FilterCondition {
  /** `to.zone`, `items.0.sku`; a list of keys where a key contains a dot. */
  readonly path: string | readonly string[];
  readonly equals?: FilterValue;
  readonly in?: readonly FilterValue[];
  /** Of a text. */
  readonly prefix?: string;
  readonly gt?: number;
  readonly gte?: number;
  readonly lt?: number;
  readonly lte?: number;
  /** Whether there is anything at the path; JSON's null is something. */
  readonly exists?: boolean;
}

/** All of them must hold. */
export type Filter = readonly FilterCondition[];

/** As functions/filter.sql reads it. */
interface StoredCondition {
  readonly path: readonly string[];
  readonly op: Operator;
  readonly value: unknown;
}

export const filterLimits = {
  conditions: 20,
  depth: 10,
  key: 128,
  text: 256,
  values: 100,
  bytes: 16 * 1024,
} as const;

const operators = ['equals', 'in', 'prefix', 'gt', 'gte', 'lt', 'lte', 'exists'] as const;
type Operator = (typeof operators)[number];

/** Checks a filter, and returns what is stored; null for none. */
export function storedFilter(filter: Filter | null): string | null {
  if (filter === null) return null;
  if (!Array.isArray(filter)) throw refuse('expected a list of conditions');
  if (filter.length > filterLimits.conditions)
    throw refuse(`it has ${filter.length} conditions, at most ${filterLimits.conditions} are allowed`);
  if (filter.length === 0) return null;
  const text = JSON.stringify(filter.map(stored));
  const bytes = Buffer.byteLength(text);
  if (bytes > filterLimits.bytes)
    throw refuse(
      `it has ${bytes} bytes, at most ${filterLimits.bytes} are allowed; name fewer or shorter values`,
    );
  return text;
}

/** A filter as its user gave it. */
export const givenFilter = (conditions: readonly StoredCondition[] | null): Filter =>
  (conditions ?? []).map(({ path, op, value }) => ({
    path: path.some((key) => key.includes('.')) ? path : path.join('.'),
    [op]: value,
  }));

function stored(condition: FilterCondition, n: number): StoredCondition {
  const where = `condition ${n + 1}`;
  if (typeof condition !== 'object' || condition === null)
    throw refuse(`${where} is not an object such as {"path": "zone", "equals": "dock-3"}`);
  const { path, ...rest } = condition;
  const given = Object.entries(rest).filter(([, value]) => value !== undefined);
  const [first, ...others] = given;
  if (first === undefined || others.length > 0 || !isOperator(first[0]))
    throw refuse(`${where} needs a path and exactly one of ${operators.join(', ')}`);
  const [op, value] = first as [Operator, unknown];
  return { path: pathOf(path, where), op, value: checkedValue(op, value, where) };
}

const isOperator = (text: string): text is Operator => (operators as readonly string[]).includes(text);

function pathOf(path: unknown, where: string): readonly string[] {
  const keys: unknown = typeof path === 'string' ? path.split('.') : path;
  const isGood =
    Array.isArray(keys) &&
    keys.length > 0 &&
    keys.length <= filterLimits.depth &&
    keys.every((key) => isText(key, filterLimits.key) && key !== '');
  if (!isGood)
    throw refuse(
      `${where} needs a path such as to.zone: 1 to ${filterLimits.depth} keys of 1 to ${filterLimits.key} characters`,
    );
  return keys as string[];
}

function checkedValue(op: Operator, value: unknown, where: string): unknown {
  const check = (isGood: boolean, expected: string): void => {
    if (!isGood) throw refuse(`"${op}" of ${where} needs ${expected}`);
  };
  const texts = `a text of at most ${filterLimits.text} characters`;
  if (op === 'equals') check(isScalar(value), `${texts}, a number, true, false or null`);
  else if (op === 'in')
    check(
      Array.isArray(value) &&
        value.length > 0 &&
        value.length <= filterLimits.values &&
        value.every(isScalar),
      `a list of 1 to ${filterLimits.values} texts, numbers, true, false or null`,
    );
  else if (op === 'prefix') check(isText(value, filterLimits.text) && value !== '', texts);
  else if (op === 'exists') check(typeof value === 'boolean', 'true or false');
  else check(Number.isFinite(value), 'a number');
  return value;
}

const isScalar = (value: unknown): boolean =>
  value === null || typeof value === 'boolean' || Number.isFinite(value) || isText(value, filterLimits.text);

/** PostgreSQL stores no NUL and no half of a character. */
const isText = (value: unknown, max: number): value is string =>
  typeof value === 'string' && value.length <= max && !value.includes('\0') && value.isWellFormed();

const refuse = (why: string): TallymanError =>
  new TallymanError('BAD_OPTION', `the filter is refused: ${why}`);
