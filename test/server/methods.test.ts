import { expect, test } from 'vitest';
import { server } from './support.ts';

const allowed = { 'server.corsOrigins': 'https://app.example.com,http://localhost:3000' };

test('API-2: a method that a path does not take is 405, with those that it takes', async () => {
  const { ask, as } = await server();
  const admin = await as('admin');
  for (const [method, path, allow] of [
    ['DELETE', '/v1/jobs', 'GET, HEAD, POST'],
    ['PUT', '/v1/jobs/17', 'GET, HEAD'],
    ['GET', '/v1/queues/a%20b/pause', 'POST'],
    ['PATCH', '/v1/health/live?x=1', 'GET, HEAD'],
    ['POST', '/v1/stream', 'GET'],
  ] as const) {
    const answer = await admin(method, path);
    expect({ path, status: answer.status, allow: answer.headers.get('allow') }).toEqual({
      path,
      status: 405,
      allow,
    });
    expect(answer.body.error).toMatchObject({
      code: 'METHOD_NOT_ALLOWED',
      correlation_id: expect.any(String),
    });
  }
  expect((await ask('GET', '/v1/nothing')).status).toBe(404);
  expect((await ask('GET', '/v1/jobsX')).status).toBe(404);
});

test('API-2: HEAD is GET without a body, and needs the same key', async () => {
  const { ask, as } = await server();
  const admin = await as('admin');
  const [get, head] = [await admin('GET', '/v1/queues'), await admin('HEAD', '/v1/queues')];
  expect(head).toMatchObject({ status: 200, body: '' });
  expect(head.headers.get('content-length')).toBe(get.headers.get('content-length'));
  expect((await ask('HEAD', '/v1/queues')).status).toBe(401);
  expect((await admin('HEAD', '/v1/jobs/17')).status).toBe(404);
  expect((await ask('HEAD', '/v1/health/ready')).status).toBe(200);
});

test('API-2: browsers of other origins may not read answers unless they are allowed', async () => {
  const { ask } = await server();
  const origin = 'https://app.example.com';
  const answer = await ask('GET', '/v1/health/live', undefined, { origin });
  expect(answer.headers.get('access-control-allow-origin')).toBeNull();
  const preflight = await ask('OPTIONS', '/v1/jobs', undefined, {
    origin,
    'access-control-request-method': 'POST',
  });
  expect(preflight.status).toBe(405);
  expect(preflight.headers.get('access-control-allow-origin')).toBeNull();
});

test('API-2: pages of allowed origins may call the API, with their key, and read errors', async () => {
  const { ask, as } = await server({ config: allowed });
  const admin = await as('admin');
  const origin = 'https://app.example.com';
  const preflight = await ask('OPTIONS', '/v1/jobs?x=1', undefined, {
    origin,
    'access-control-request-method': 'POST',
    'access-control-request-headers': 'authorization, content-type',
  });
  expect(preflight.status).toBe(204);
  expect(Object.fromEntries(preflight.headers)).toMatchObject({
    'access-control-allow-origin': origin,
    'access-control-allow-methods': 'GET, HEAD, POST',
    'access-control-allow-headers': expect.stringContaining('idempotency-key'),
    vary: 'Origin',
  });
  for (const path of ['/v1/jobs', '/v1/jobs/17', '/v1/nothing']) {
    const { headers } = await admin('GET', path, undefined, { origin });
    expect(headers.get('access-control-allow-origin')).toBe(origin);
    expect(headers.get('access-control-expose-headers')).toContain('x-correlation-id');
  }
  expect((await ask('GET', '/v1/jobs', undefined, { origin })).status).toBe(401);
  const other = await admin('GET', '/v1/jobs', undefined, { origin: 'https://evil.example.com' });
  expect(other.headers.get('access-control-allow-origin')).toBeNull();
  expect(other.headers.get('vary')).toBe('Origin');
});

test('API-2: the live stream can be read by a page of an allowed origin', async () => {
  const { url, keys } = await server({ config: allowed });
  const { key } = await keys.create({ tenantId: 'default', name: 'page', role: 'auditor' });
  const reading = new AbortController();
  const response = await fetch(`${url}/v1/stream`, {
    headers: { authorization: `Bearer ${key}`, origin: 'http://localhost:3000' },
    signal: reading.signal,
  });
  expect(response.headers.get('access-control-allow-origin')).toBe('http://localhost:3000');
  expect(response.headers.get('content-type')).toContain('text/event-stream');
  expect(response.headers.get('x-correlation-id')).toBeTruthy();
  reading.abort();
});
