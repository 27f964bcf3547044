import { expect, test } from 'vitest';
import { requireSecret } from '../../../src/apps/webhooks/delivery/sign.ts';
import { type Filter, storedFilter } from '../../../src/apps/webhooks/filter.ts';
import { checkedHeaders } from '../../../src/apps/webhooks/headers.ts';

test.each([
  { filter: [{ path: 'a' }], says: 'exactly one of' },
  { filter: [{ path: 'a', equals: 1, gt: 2 }], says: 'exactly one of' },
  { filter: [{ path: '', equals: 1 }], says: 'needs a path' },
  { filter: [{ path: 'a..b', equals: 1 }], says: 'needs a path' },
  { filter: [{ path: Array(11).fill('a'), equals: 1 }], says: 'needs a path' },
  { filter: [{ path: 'a', gt: '1' }], says: 'needs a number' },
  { filter: [{ path: 'a', equals: { b: 1 } }], says: 'needs a text' },
  { filter: [{ path: 'a', equals: 'x\0' }], says: 'needs a text' },
  { filter: [{ path: 'a', in: [] }], says: 'needs a list' },
  { filter: [{ path: 'a', matches: '.*' }], says: 'exactly one of' },
  { filter: Array(21).fill({ path: 'a', equals: 1 }), says: '21 conditions' },
  {
    filter: Array(20).fill({ path: 'a', in: Array(100).fill('x'.repeat(256)) }),
    says: 'at most 16384 are allowed',
  },
  { filter: 'a = 1', says: 'a list of conditions' },
])('WH-10: the filter $filter is refused', ({ filter, says }) => {
  expect(() => storedFilter(filter as Filter)).toThrow(says);
});

test.each([
  { headers: { 'X-A': 'one\r\nX-B: two' }, says: 'printable' },
  { headers: { 'X-A': 'one\0' }, says: 'printable' },
  { headers: { 'X-A': 'ünïcode' }, says: 'printable' },
  { headers: { 'X-A': '' }, says: 'printable' },
  { headers: { 'X-A': ' padded' }, says: 'blank' },
  { headers: { 'X A': 'one' }, says: 'not a header name' },
  { headers: { 'X-A\r\nX-B': 'one' }, says: 'not a header name' },
  { headers: { Host: 'internal' }, says: 'choose another' },
  { headers: { 'Content-Length': '0' }, says: 'choose another' },
  { headers: { 'Transfer-Encoding': 'chunked' }, says: 'choose another' },
  { headers: { Connection: 'close' }, says: 'choose another' },
  { headers: { 'Proxy-Authorization': 'x' }, says: 'choose another' },
  { headers: { 'Webhook-Signature': 'v1,forged' }, says: 'choose another' },
  { headers: { 'X-BPC-Signature': 'sha256=forged' }, says: 'choose another' },
  { headers: { 'X-A': '1', 'x-a': '2' }, says: 'twice' },
  { headers: { 'X-A': 'x'.repeat(1025) }, says: '1024' },
  {
    headers: Object.fromEntries(Array.from({ length: 21 }, (_, n) => [`x-${n}`, '1'])),
    says: 'there are 21',
  },
])('WH-10: $headers are refused, without a value in the message', ({ headers, says }) => {
  const check = () => checkedHeaders(headers as unknown as Record<string, string>);
  expect(check).toThrow(says);
  expect(check).not.toThrow(/forged|internal|chunked/);
});

test.each([
  { secret: 'short', says: 'it has 5 bytes' },
  { secret: 'x'.repeat(257), says: 'it has 257 bytes' },
  { secret: 'ends with a line\n', says: 'control character' },
  { secret: 'half \ud800 of a character', says: 'not Unicode' },
  { secret: 'whsec_this is not base64', says: 'not base64' },
  { secret: 'whsk_AAAAAAAAAAAAAAAAAAAAAAAA', says: 'Ed25519' },
])('WH-10: the secret $secret is refused', ({ secret, says }) => {
  expect(() => requireSecret(secret)).toThrow(says);
});
