import type { Json } from '../compile/index.ts';
import { formatDecimal } from '../compile/quantity.ts';
import { isQuantity } from '../page/values.ts';

/**
 * A value as other systems take it: a quantity becomes a JSON number. One with more digits than a double keeps becomes a
 * text: a number that changes on the way is worse than a text.
 */
export function plainValue(value: Json): Json {
  if (Array.isArray(value)) return value.map(plainValue);
  if (typeof value !== 'object' || value === null) return value;
  if (isQuantity(value))
    return plainNumber(formatDecimal({ value: BigInt(value.value), scale: value.scale }));
  return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, plainValue(each)]));
}

/** A double keeps 15 significant digits, whatever they are. */
function plainNumber(decimal: string): number | string {
  const significant = decimal.replace(/[-.]/g, '').replace(/^0+/, '');
  return significant.length <= 15 ? Number(decimal) : decimal;
}

/** The unit of a quantity, or of a list of them. */
export function unitOf(value: Json): string | undefined {
  const first = Array.isArray(value) ? (value[0] as Json | undefined) : value;
  return first !== undefined && isQuantity(first) && first.unit !== '1' ? first.unit : undefined;
}
