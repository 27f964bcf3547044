/**
 * PostgreSQL arrays as text. The driver escapes every element of every array, which for thousands of numbers, hex digits
 * and times that need none is most of what a batch costs this process.
 * An array of nothing but nulls is null itself: `unnest` fills it up.
 */

/** Of values that hold nothing but letters, digits and `+-.:`. */
export function plainArray(values: readonly (string | number | boolean | null)[]): string | null {
  if (values.length > 0 && values.every((value) => value === null)) return null;
  let text = '{';
  for (const value of values) text += text === '{' ? (value ?? 'null') : `,${value ?? 'null'}`;
  return `${text}}`;
}

/** Of any text. Each one that occurs is escaped once. */
export function textArray(values: readonly (string | null)[]): string | null {
  if (values.length > 0 && values.every((value) => value === null)) return null;
  const quoted = new Map<string | null, string>([[null, 'null']]);
  let text = '{';
  for (const value of values) {
    let element = quoted.get(value);
    if (element === undefined) {
      element = `"${(value as string).replace(/["\\]/g, '\\$&')}"`;
      quoted.set(value, element);
    }
    text += text === '{' ? element : `,${element}`;
  }
  return `${text}}`;
}
