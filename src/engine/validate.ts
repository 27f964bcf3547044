import { TallymanError } from './errors.ts';

export function requireText(value: unknown, what: string, maxBytes: number): asserts value is string {
  if (typeof value !== 'string' || value.length === 0)
    throw new TallymanError(
      'BAD_OPTION',
      `${what} must be a text that is not empty, got ${JSON.stringify(value)}`,
    );
  const bytes = Buffer.byteLength(value);
  if (bytes > maxBytes)
    throw new TallymanError('BAD_OPTION', `${what} must be at most ${maxBytes} bytes, got ${bytes}`);
  if (value.includes('\0')) throw new TallymanError('BAD_OPTION', `${what} must not contain a NUL character`);
}

export function requireWhole(
  value: unknown,
  what: string,
  min: number,
  max: number,
): asserts value is number {
  if (!Number.isInteger(value) || (value as number) < min || (value as number) > max)
    throw new TallymanError(
      'BAD_OPTION',
      `${what} must be a whole number from ${min} to ${max}, got ${String(value)}`,
    );
}

/** PostgreSQL can store it as a text. */
export const isKeepable = (text: string): boolean => !text.includes('\0') && text.isWellFormed();

/** A `bigint` of PostgreSQL, as text: ids go beyond what a number of JavaScript holds. */
export const isId = (text: string): boolean =>
  /^\d{1,19}$/.test(text) && BigInt(text) <= 9223372036854775807n;

export function requireId(id: string): void {
  if (!isId(id)) throw new TallymanError('BAD_OPTION', `"${id}" is not an id: expected a number`);
}
