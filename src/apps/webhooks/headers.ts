import { TallymanError } from '../../engine/errors.ts';

/** Headers of the user's own that go with every delivery of an endpoint. */
export type CustomHeaders = Readonly<Record<string, string>>;

export const headerLimits = { count: 20, name: 64, value: 1024 } as const;

/** Ours, those that say how the message is transferred, and those that are for the next hop alone. */
const reserved = new Set([
  ...['host', 'user-agent', 'accept-encoding', 'date', 'expect', 'connection', 'keep-alive', 'te', 'trailer'],
  ...['transfer-encoding', 'upgrade', 'via', 'forwarded', 'max-forwards'],
]);
const reservedPrefixes = ['content-', 'webhook-', 'x-bpc-', 'proxy-', 'x-forwarded-', 'sec-', ':'];

/** Checks headers, and returns them with names in lower case. */
export function checkedHeaders(headers: CustomHeaders): CustomHeaders {
  const entries = Object.entries(headers);
  if (entries.length > headerLimits.count)
    throw refuse(`there are ${entries.length}, at most ${headerLimits.count} are allowed`);
  const checked = new Map<string, string>();
  for (const [given, value] of entries) {
    const name = given.toLowerCase();
    if (!/^[a-z0-9!#$%&'*+.^_`|~-]+$/.test(name) || name.length > headerLimits.name)
      throw refuse(
        `${JSON.stringify(given)} is not a header name of at most ${headerLimits.name} characters`,
      );
    if (reserved.has(name) || reservedPrefixes.some((prefix) => name.startsWith(prefix)))
      throw refuse(`"${name}" is set by Tallyman, or is not for the receiver; choose another name`);
    if (checked.has(name)) throw refuse(`"${name}" is given twice`);
    // The value is not part of the message: it may be a credential.
    if (typeof value !== 'string' || value.length > headerLimits.value || !/^[\x20-\x7e]+$/.test(value))
      throw refuse(
        `the value of "${name}" must be 1 to ${headerLimits.value} printable characters of ASCII, on one line`,
      );
    if (value !== value.trim()) throw refuse(`the value of "${name}" begins or ends with a blank`);
    checked.set(name, value);
  }
  return Object.fromEntries(checked);
}

const refuse = (why: string): TallymanError =>
  new TallymanError('BAD_OPTION', `the headers are refused: ${why}`);
