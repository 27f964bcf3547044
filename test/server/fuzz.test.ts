import { connect } from 'node:net';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { accessOf } from '../../src/host/app.ts';
import { apps } from '../../src/host/apps.ts';
import { roles } from '../../src/host/roles.ts';
import { routesOf } from '../../src/server/routes/index.ts';
import { type Ask, furnish, server } from './support.ts';

const nasty: readonly unknown[] = [
  null,
  true,
  0,
  -1,
  1.5,
  1e308,
  2 ** 60,
  '',
  ' ',
  'x'.repeat(5000),
  '\u0000',
  'a\u0000b',
  '\ud800',
  '😀'.repeat(300),
  "'; drop table tallyman.jobs; --",
  '../../etc/passwd',
  '2026-02-30T00:00:00Z',
  '99999-01-01T00:00:00Z',
  'NaN',
  [],
  [[]],
  {},
  { __proto__: { admin: true } },
  { constructor: { prototype: {} } },
  Array.from({ length: 2000 }, () => 'x'),
];

/** Bodies that are not what was asked for, with every field of the route taking its turn to be nasty. */
function bodies(fields: readonly string[]): unknown[] {
  const whole = [...nasty, { unknown_field: 1 }];
  return [...whole, ...fields.flatMap((field) => nasty.map((value) => ({ [field]: value })))];
}

test('bad bodies, types, sizes and encodings on every route: 4xx that names the field, never 5xx', {
  timeout: 900_000,
}, async () => {
  const test = await server();
  const ask = await test.as('admin');
  const ids = await furnish(test, ask);
  let asked = 0;
  let named = 0;
  for (const route of await routesOf(apps, test.host)) {
    const fill = (value: string) => route.url.replace(/:\w+/, encodeURIComponent(value));
    const real = Object.values(ids);
    const fields = Object.keys(route.body?.shape ?? route.body?.def?.innerType?.shape ?? {});
    const check = async (url: string, body?: unknown, headers?: Record<string, string>) => {
      const answer = await ask(route.method, url, body, { accept: 'application/json', ...headers });
      asked += 1;
      const seen = {
        route: route.action,
        url,
        body: JSON.stringify(body)?.slice(0, 80),
        status: answer.status,
      };
      expect(answer.status < 500 ? 'ok' : seen).toBe('ok');
      if (answer.status < 400) return;
      // The reads of EN 18222 have the standard's own form of errors.
      if (answer.body.statusCode !== undefined) {
        expect(answer.body).toMatchObject({
          statusCode: expect.stringMatching(/^Client/),
          message: [{ messageType: 'Error', text: expect.any(String), correlationId: expect.any(String) }],
        });
        return;
      }
      expect({ ...seen, error: answer.body.error }).toMatchObject({
        error: {
          code: expect.stringMatching(/^[A-Z_]+$/),
          message: expect.any(String),
          correlation_id: expect.any(String),
        },
      });
      if (answer.body.error.code === 'VALIDATION_ERROR') {
        expect(answer.body.error.message).toMatch(/^(body|query|params|headers)\b/);
        named += 1;
      }
    };
    const requests: Parameters<typeof check>[] = [];
    if (route.url.includes(':'))
      for (const value of [
        '0',
        '-1',
        'x',
        '9'.repeat(40),
        '9223372036854775808',
        '%00',
        '\u0000',
        '\ud83d',
        "'",
        ' ',
        'é'.repeat(200),
      ])
        requests.push([fill(value.isWellFormed() ? value : 'x')]);
    const url = fill(real[0] ?? '1');
    if (route.method === 'GET')
      for (const query of [
        'limit=0',
        'limit=x',
        'limit=1e9',
        'cursor=x',
        'cursor=-1',
        'status=x',
        'unknown=1',
        'kind=%00',
        'queue=',
        'limit=1&limit=2',
        'kind[a]=1',
        '%E0%A4%A',
      ])
        requests.push([`${url}?${query}`]);
    else {
      for (const body of bodies(fields)) requests.push([url, JSON.stringify(body)]);
      for (const raw of [
        '{',
        '[1,',
        '"',
        'nul',
        '{"a":1}}',
        '\ufeff{}',
        '{"a":"\\ud800"}',
        '{"kind":"\\u0000"}',
        '{"__proto__":{"x":1}}',
        '1'.repeat(100_000),
      ])
        requests.push([url, raw]);
      requests.push([url, '{}', { 'content-type': 'text/plain' }]);
      requests.push([url, '{}', { 'content-type': 'application/json; charset=utf-16' }]);
      // The second has too many bytes in UTF-8 alone.
      for (const key of ['x'.repeat(300), '\u00e9'.repeat(200)])
        requests.push([url, '{}', { 'idempotency-key': key }]);
    }
    for (let from = 0; from < requests.length; from += 16)
      await Promise.all(requests.slice(from, from + 16).map((request) => check(...request)));
  }
  const big = await ask('POST', '/v1/jobs', { kind: 'noop', payload: 'x'.repeat(3_000_000) });
  expect(big).toMatchObject({ status: 413, body: { error: { code: 'PAYLOAD_TOO_LARGE' } } });
  const bigPayload = await ask('POST', '/v1/jobs', { kind: 'noop', payload: 'x'.repeat(1_100_000) });
  expect(bigPayload).toMatchObject({ status: 413, body: { error: { code: 'PAYLOAD_TOO_LARGE' } } });
  expect(named).toBeGreaterThan(500);
  console.info(
    `fuzz: ${asked} requests to ${(await routesOf(apps, test.host)).length} routes, ${named} named the field`,
  );
});

test('SEC-8: every route as every role: who may not is refused before anything is read, nobody gets a 5xx', {
  timeout: 900_000,
}, async () => {
  const test = await server();
  const ids = await furnish(test, await test.as('admin'));
  const [access] = accessOf(apps);
  const asking = new Map<string, Ask>([['nobody', test.ask]]);
  for (const role of roles)
    asking.set(role, await test.as(role, 'default', role === 'guest' ? access?.name : undefined));
  for (const route of await routesOf(apps, test.host)) {
    const fill = (value: string) => route.url.replaceAll(/:\w+/g, encodeURIComponent(value));
    const requests = [
      [fill(Object.values(ids)[0] ?? '1'), '{}'],
      [fill("'"), '{"a":'],
      [`${fill('9'.repeat(40))}?limit=x`, '[null]'],
    ] as const;
    for (const [role, ask] of asking) {
      const mayAsk = route.public !== undefined || (route.roles as readonly string[]).includes(role);
      for (const [url, body] of requests) {
        const answer = await ask(route.method, url, route.method === 'GET' ? undefined : body);
        const seen = [role, route.action, url, answer.status];
        expect([...seen, answer.status < 500]).toEqual([...seen, true]);
        if (!mayAsk) expect(seen).toEqual([role, route.action, url, role === 'nobody' ? 401 : 403]);
      }
    }
  }
});

test('anything that is JSON, as a payload: kept as it was, or refused', { timeout: 300_000 }, async () => {
  const test = await server();
  const ask = await test.as('admin');
  await test.rows(`select tallyman.register_kind('noop', is_public => true)`);
  await fc.assert(
    fc.asyncProperty(fc.jsonValue(), async (payload) => {
      const made = await ask('POST', '/v1/jobs', { kind: 'noop', payload });
      expect([201, 400]).toContain(made.status);
      if (made.status === 201)
        expect((await ask('GET', `/v1/jobs/${made.body.id}`)).body.payload).toEqual(
          JSON.parse(JSON.stringify(payload)),
        );
    }),
    { numRuns: 150 },
  );
});

test('bytes that are not HTTP, or not yet: the server goes on', async () => {
  const { url, ask } = await server();
  const port = Number(new URL(url).port);
  const send = (bytes: string | Buffer) =>
    new Promise<string>((resolve) => {
      let heard = '';
      const socket = connect(port, '127.0.0.1', () => socket.end(bytes));
      socket.on('data', (chunk) => {
        heard += chunk;
      });
      socket.on('error', () => resolve(heard));
      socket.on('close', () => resolve(heard));
    });
  expect(await send('hello\r\n\r\n')).toMatch(/^HTTP\/1.1 400/);
  expect(await send(Buffer.from([0, 1, 2, 255, 254]))).toMatch(/^(HTTP\/1.1 400|$)/);
  // In one read: with bytes left unread, the server's close would be a reset, which may overtake its answer.
  expect(await send(`GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nX: ${'y'.repeat(20_000)}\r\n\r\n`)).toMatch(
    /^HTTP\/1.1 431/,
  );
  expect(
    await send(
      'POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 5\r\nConnection: close\r\n\r\n{"\xff\xfe',
    ),
  ).toMatch(/^HTTP\/1.1 400/);
  expect(await send('GET /v1/%ZZ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n')).toMatch(
    /^HTTP\/1.1 40[04]/,
  );
  expect((await ask('GET', '/v1/health/live')).body).toEqual({ status: 'ok' });
});
