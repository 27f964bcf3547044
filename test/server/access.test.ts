import { expect, test } from 'vitest';
import { apps } from '../../src/host/apps.ts';
import { loadConfig } from '../../src/host/config.ts';
import { RateLimit } from '../../src/server/access/rate-limit.ts';
import { until } from '../support/engine.ts';
import { furnish, registerKind, server, type TestServer } from './support.ts';

test('without keys it trusts this machine alone; the first key closes the door', async () => {
  const { ask, as } = await server();
  expect((await ask('GET', '/v1/jobs')).status).toBe(200);
  // fetch does not let anybody choose the host; a page on another site shows itself by its origin.
  expect((await ask('GET', '/v1/jobs', undefined, { origin: 'http://evil.example' })).status).toBe(401);
  const made = await ask('POST', '/v1/keys', { name: 'first', role: 'admin' });
  expect(made.body.key).toMatch(/^tlm_[a-z0-9]{12}_[\w-]{43}$/);
  expect(await ask('GET', '/v1/jobs')).toMatchObject({
    status: 401,
    body: { error: { code: 'UNAUTHENTICATED' } },
  });
  const ops = await as('operator');
  expect((await ops('GET', '/v1/jobs')).status).toBe(200);
});

test('it does not listen beyond loopback without a key', async () => {
  await expect(server({ config: { 'server.host': '0.0.0.0' } })).rejects.toMatchObject({ code: 'NO_KEYS' });
});

test('a key is shown once and kept as a hash; revoked, expired and forged ones open nothing', async () => {
  const test = await server();
  const { keys, ask } = test;
  const { key, apiKey } = await keys.create({ tenantId: 'default', name: 'k', role: 'auditor' });
  const [row] = await test.rows<{ hash: Buffer }>('select * from tallyman_server.api_keys where id = $1', [
    apiKey.id,
  ]);
  const secret = key.slice(`tlm_${apiKey.id}_`.length);
  expect(secret).toHaveLength(43);
  expect(JSON.stringify(row)).not.toContain(secret);
  expect(row?.hash).toHaveLength(32);
  const status = async (bearer: string) =>
    (await ask('GET', '/v1/jobs', undefined, { authorization: `Bearer ${bearer}` })).status;
  expect(await status(key)).toBe(200);
  const last = key.at(-1) === 'A' ? 'B' : 'A';
  expect(await status(key.slice(0, -1) + last)).toBe(401);
  expect(await status(`tlm_${'a'.repeat(12)}_${'b'.repeat(43)}`)).toBe(401);
  expect(await status("' or 1=1 --")).toBe(401);
  await keys.revoke(apiKey.id);
  expect(await status(key)).toBe(401);
  const past = await keys.create({ tenantId: 'default', name: 'k', role: 'auditor', expiresAt: new Date(0) });
  expect(await status(past.key)).toBe(401);
});

test('what each role may do', async () => {
  const test = await server();
  const admin = await test.as('admin');
  const ids = await furnish(test, admin);
  const may: Record<string, number[]> = {};
  for (const role of ['admin', 'operator', 'auditor', 'producer'] as const) {
    const ask = await test.as(role);
    may[role] = [
      (await ask('GET', `/v1/jobs/${ids.job}`)).status,
      (await ask('POST', '/v1/jobs', { kind: 'noop' })).status,
      (await ask('GET', '/v1/dead-letters')).status,
      (await ask('POST', `/v1/schedules/${ids.schedule}/resume`)).status,
      (await ask('GET', '/v1/audit')).status,
      (await ask('GET', '/v1/keys')).status,
    ];
  }
  expect(may).toEqual({
    admin: [200, 201, 200, 409, 200, 200],
    operator: [200, 201, 200, 409, 403, 403],
    auditor: [200, 403, 200, 403, 200, 403],
    producer: [200, 201, 403, 403, 403, 403],
  });
});

test('every write and every refusal is in the audit, and a write that failed says so', async () => {
  const test = await server();
  const admin = await test.as('admin');
  const producer = await test.as('producer');
  await registerKind(test, 'noop');
  const { id } = (await producer('POST', '/v1/jobs', { kind: 'noop' })).body;
  await admin('POST', `/v1/jobs/${id}/cancel`, undefined, { 'x-correlation-id': 'why' });
  await admin('POST', `/v1/jobs/${id}/cancel`);
  await producer('GET', '/v1/keys');
  await test.ask('GET', '/v1/jobs');
  await admin('GET', '/v1/jobs');
  const lines = async () =>
    ((await admin('GET', '/v1/audit')).body.items as Record<string, string>[])
      .map(({ action, outcome, status, resource }) => [action, outcome, status, resource])
      .reverse();
  await until('they are written', async () => (await lines()).length >= 5);
  // Refusals are written beside the request, so their place among the others is not certain.
  expect((await lines()).sort()).toEqual(
    [
      ['jobs.enqueue', 'done', 201, id],
      ['jobs.cancel', 'done', 204, id],
      ['jobs.cancel', 'failed', 409, id],
      ['keys.list', 'refused', 403, null],
      ['jobs.list', 'refused', 401, null],
    ].sort(),
  );
  const [cancelled] = (await admin('GET', '/v1/audit?action=jobs.cancel&outcome=done')).body.items;
  expect(cancelled).toMatchObject({
    correlation_id: 'why',
    actor: expect.stringMatching(/^key:/),
    address: '127.0.0.1',
  });
});

test('a key that asks too often is told when to come back; others are not held up', async () => {
  // So slowly refilled that a slow machine gains nothing by it.
  const test = await server({ config: { 'server.ratePerSecond': 0.001, 'server.rateBurst': 5 } });
  const [busy, calm] = [await test.as('auditor'), await test.as('auditor')];
  const statuses = await Promise.all(
    Array.from({ length: 12 }, async () => (await busy('GET', '/v1/jobs')).status),
  );
  expect(statuses.filter((status) => status === 429)).toHaveLength(7);
  const askedAt = performance.now();
  const refused = await busy('GET', '/v1/jobs');
  expect(refused).toMatchObject({ status: 429, body: { error: { code: 'RATE_LIMITED' } } });
  // It waits for its refusal, so that it cannot ask thousands of times a second.
  expect(performance.now() - askedAt).toBeGreaterThan(190);
  expect(Number(refused.headers.get('retry-after'))).toBeGreaterThanOrEqual(1);
  expect((await calm('GET', '/v1/jobs')).status).toBe(200);
});

test('SEC-5: all keys of a tenant together have a limit, also one made anew each time; other tenants go on', async () => {
  // So slowly refilled that a slow machine gains nothing by it.
  const config = { 'server.ratePerSecond': 0.001, 'server.rateBurst': 5, 'server.tenantRateFactor': 2 };
  const test = await server({ config });
  const other = await test.as('auditor', 'other');
  const statuses: number[] = [];
  for (let n = 0; n < 4; n += 1) {
    const ask = await test.as('auditor');
    for (let i = 0; i < 4; i += 1) statuses.push((await ask('GET', '/v1/jobs')).status);
  }
  expect(statuses).toEqual([...Array(10).fill(200), ...Array(6).fill(429)]);
  expect((await other('GET', '/v1/jobs')).status).toBe(200);
});

test('SEC-5: of a trusted proxy the address that it adds counts, of anybody else the connection', async () => {
  const config = { 'server.ratePerSecond': 0.001, 'server.rateBurst': 3 };
  const statuses = async (test: TestServer, forwarded: readonly string[]): Promise<number[]> => {
    const found: number[] = [];
    for (const address of forwarded)
      found.push((await test.ask('GET', '/v1/jobs', undefined, { 'x-forwarded-for': address })).status);
    return found;
  };
  const behind = await server({ config: { ...config, 'server.trustedProxies': '10.0.0.0/8,127.0.0.1' } });
  await behind.as('auditor');
  const [first, second] = ['203.0.113.1', '2001:db8::1'];
  expect(await statuses(behind, [first, first, first, first])).toEqual([401, 401, 401, 429]);
  // What the caller itself says stands before it; a proxy behind a proxy behind it.
  expect(await statuses(behind, [`203.0.113.9, ${first}`, `${first}, 10.1.2.3`])).toEqual([429, 429]);
  expect(await statuses(behind, [second, `[${second}]:4711`, '2001:db8::2'])).toEqual([401, 401, 401]);
  expect(await statuses(behind, [second])).toEqual([429]);
  // Nothing that is an address: the proxy's own.
  expect(await statuses(behind, ['unknown', 'x'.repeat(5000), '', '_'])).toEqual([401, 401, 401, 429]);
  await until('the audit has the addresses', async () => {
    const rows = await behind.rows<{ address: string }>(
      'select distinct address from tallyman_server.audit_events order by address',
    );
    return rows.map(({ address }) => address).join() === `127.0.0.1,${second},${first}`;
  });
  const direct = await server({ config: { ...config, 'server.trustedProxies': '10.0.0.0/8' } });
  await direct.as('auditor');
  expect(await statuses(direct, ['203.0.113.1', '203.0.113.2', '203.0.113.3', '203.0.113.4'])).toEqual([
    401, 401, 401, 429,
  ]);
});

test.each([
  '',
  'proxy.example',
  '10.0.0.0/0',
  '10.0.0.0/33',
  '10.0.0.1/8/8',
  '10.0.0.1, 10.0.0.2',
  'fe80::1%eth0',
  '::/129',
  '*',
])('SEC-5: "%s" is not a list of proxies', (list) => {
  const load = () => loadConfig(apps, { env: { TALLYMAN_TRUSTED_PROXIES: list } });
  if (list === '') expect(load()['server.trustedProxies']).toBe(null);
  else expect(load).toThrow(/server\.trustedProxies.*expected addresses or networks/);
});

test('a wrong key is in the audit, also where none is needed', async () => {
  const test = await server();
  const admin = await test.as('admin');
  const forged = { authorization: `Bearer tlm_${'a'.repeat(12)}_${'b'.repeat(43)}` };
  expect((await test.ask('GET', '/v1/health/ready', undefined, forged)).status).toBe(401);
  const refusals = async () => (await admin('GET', '/v1/audit?action=health.ready')).body.items;
  await until('it is written', async () => (await refusals()).length > 0, 10_000);
  expect(await refusals()).toMatchObject([{ outcome: 'refused', status: 401, code: 'UNAUTHENTICATED' }]);
});

test('a bucket refills by the clock and is bounded in number', () => {
  let now = 0;
  const limit = new RateLimit(2, 4, { now: () => now });
  expect(Array.from({ length: 6 }, () => limit.take('a'))).toEqual([0, 0, 0, 0, 1, 1]);
  now += 1000;
  expect(Array.from({ length: 3 }, () => limit.take('a'))).toEqual([0, 0, 1]);
  for (let i = 0; i < 30_000; i += 1) limit.take(`stranger ${i}`);
  expect(limit.size).toBeLessThanOrEqual(10_000);
});
