import { isIP } from 'node:net';
import { TallymanError } from '../engine/errors.ts';
import type { AddressPolicy } from './addresses.ts';

const maxLength = 2048;

/**
 * Checks an address without a lookup. What its name resolves to is checked at every connect.
 * Returns the address as the URL parser writes it: `http://0x7f.1` is `http://127.0.0.1/`.
 */
export function checkUrl(text: string, policy: AddressPolicy): URL {
  const refuse = (why: string) =>
    new TallymanError('BAD_OPTION', `${policy.names.address} is refused: ${why}`);
  if (typeof text !== 'string' || !URL.canParse(text))
    throw refuse(`"${String(text)}" is not a URL; expected one such as https://example.com/hooks`);
  if (text.length > maxLength)
    throw refuse(`it is ${text.length} characters long, at most ${maxLength} are allowed`);
  const url = new URL(text);
  if (url.protocol !== 'https:' && url.protocol !== 'http:')
    throw refuse(`its scheme is "${url.protocol.slice(0, -1)}", expected https`);
  if (url.protocol === 'http:' && policy.requireHttps)
    throw refuse(`http is not encrypted; use https (${policy.names.requireHttps}=false allows http)`);
  if (url.username !== '' || url.password !== '')
    throw refuse('it contains a user name or password, which everybody sees who sees the address');
  if (url.hash !== '') throw refuse('it has a fragment (#…), which is never sent');
  const host = hostOf(url);
  const why = isIP(host) === 0 ? undefined : policy.refusal(host);
  if (why !== undefined)
    throw refuse(`${host} is ${why} (${policy.names.allowPrivate} says which are allowed)`);
  return url;
}

/** Without the brackets of an IPv6 address. */
export const hostOf = (url: URL): string => url.hostname.replace(/^\[(.*)\]$/, '$1');
