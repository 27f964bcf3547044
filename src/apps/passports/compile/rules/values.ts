import { CompileError } from '../errors.ts';
import { compare, Quantity, quantity, toJson } from '../quantity.ts';
import type { Json, JsonObject } from '../types.ts';
import { unitNamed } from '../units.ts';

/** What an expression can be while it is evaluated. An `int` of CEL is a bigint. */
export type Value = string | boolean | bigint | Quantity | readonly Value[] | FactRecord;

/** A row of a document, with typed columns. One class for each type: the CEL library tells types by constructors. */
export class FactRecord {
  declare readonly type: string;
  readonly [column: string]: Value;
}

function recordClass(type: string): new () => FactRecord {
  const Of = class extends FactRecord {};
  Object.defineProperty(Of, 'name', { value: type });
  Object.defineProperty(Of.prototype, 'type', { value: type });
  return Of;
}

/** The columns of records that rules read, by record type. */
export const recordTypes = {
  Material: {
    component: 'string',
    name: 'string',
    cas: 'string',
    mass: 'Kg',
    critical: 'list<string>',
    hazardous: 'bool',
  },
  FootprintStage: { stage: 'string', amount: 'KgCO2e' },
  Diligence: { topic: 'string', material: 'string', statement: 'string', reference: 'string' },
} as const satisfies Readonly<Record<string, Readonly<Record<string, string>>>>;

export type RecordType = keyof typeof recordTypes;
export const recordClasses: Readonly<Record<RecordType, new () => FactRecord>> = {
  Material: recordClass('Material'),
  FootprintStage: recordClass('FootprintStage'),
  Diligence: recordClass('Diligence'),
};

/** Turns JSON of a fact into a value of a type. Undefined if it is not of that type. */
export function fromJson(type: string, json: Json | undefined): Value | undefined {
  if (type === 'string') return typeof json === 'string' ? json : undefined;
  if (type === 'bool') return typeof json === 'boolean' ? json : undefined;
  if (type === 'int') return typeof json === 'number' ? BigInt(json) : undefined;
  const element = elementType(type);
  if (element !== undefined) {
    if (!Array.isArray(json)) return undefined;
    const list = json.map((each) => fromJson(element, each));
    return list.every((each) => each !== undefined) ? list : undefined;
  }
  if (!isObject(json)) return undefined;
  if (Object.hasOwn(recordTypes, type)) return recordFrom(type as RecordType, json);
  const unit = unitNamed(type);
  const { value, scale, unit: symbol } = json;
  if (!unit || symbol !== unit.symbol || typeof value !== 'number' || typeof scale !== 'number')
    return undefined;
  if (!Number.isInteger(scale) || scale < 0 || scale > 18) return undefined;
  return quantity(type, BigInt(value), scale);
}

export function recordFrom(type: RecordType, json: JsonObject): FactRecord | undefined {
  const record = new recordClasses[type]() as unknown as Record<string, Value>;
  for (const [column, columnType] of Object.entries(recordTypes[type])) {
    const value = fromJson(columnType, json[column]);
    if (value === undefined) return undefined;
    record[column] = value;
  }
  return record as unknown as FactRecord;
}

/** For payloads. Fails for integers that JSON cannot hold exactly. */
export function valueToJson(value: Value): Json {
  if (typeof value === 'bigint') {
    const number = Number(value);
    if (Number.isSafeInteger(number)) return number;
    throw new CompileError('VALIDATION_ERROR', `${value} has too many digits for a passport`);
  }
  if (value instanceof Quantity) return { ...toJson(value) };
  if (isList(value)) return value.map(valueToJson);
  if (value instanceof FactRecord) return recordToJson(value, valueToJson);
  return value;
}

/** For proofs: intermediate integers of any size (as text beyond 2^53), lists of records by their number. */
export function valueForProof(value: Value): Json {
  if (typeof value === 'bigint') return exactInteger(value);
  if (value instanceof Quantity)
    return {
      value: exactInteger(value.value),
      scale: value.scale,
      unit: unitNamed(value.type)?.symbol ?? '',
    };
  if (isList(value))
    return value.some((each) => each instanceof FactRecord)
      ? { records: value.length }
      : value.map(valueForProof);
  if (value instanceof FactRecord) return { record: value.type };
  return value;
}

export const exactInteger = (value: bigint): Json => {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : String(value);
};

function recordToJson(record: FactRecord, each: (value: Value) => Json): Json {
  return Object.fromEntries(Object.entries(record).map(([column, value]) => [column, each(value)]));
}

/** As CEL has it: numbers by what they are, 12.5 is 12.50; lists element by element. */
export function equals(a: Value, b: Value): boolean {
  if (a instanceof Quantity && b instanceof Quantity) return a.type === b.type && compare(a, b) === 0;
  if (isList(a) && isList(b))
    return a.length === b.length && a.every((each, at) => equals(each, b[at] as Value));
  return a === b;
}

export const isList = (value: Value): value is readonly Value[] => Array.isArray(value);

export const elementType = (type: string): string | undefined => /^list<(.+)>$/.exec(type)?.[1];

const isObject = (json: Json | undefined): json is JsonObject =>
  typeof json === 'object' && json !== null && !Array.isArray(json);
