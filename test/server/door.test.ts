import { request } from 'node:http';
import { expect, test } from 'vitest';
import { takeTenantRole } from '../../src/engine/database/tenant.ts';
import { isLoopbackAddress } from '../../src/network/loopback.ts';
import { ApiKeys } from '../../src/server/access/keys.ts';
import { notLocal } from '../../src/server/access/local.ts';
import { server, type TestServer } from './support.ts';

/** With any header, which fetch does not allow. Returns status and error code. */
function ask(
  url: string,
  headers: Record<string, string> = {},
): Promise<{ status: number; message: string }> {
  return new Promise((resolve, reject) => {
    const sent = request(`${url}/v1/jobs`, { headers, agent: false }, async (answer) => {
      let text = '';
      for await (const chunk of answer) text += chunk;
      resolve({ status: answer.statusCode ?? 0, message: JSON.parse(text).error?.message ?? '' });
    });
    sent.on('error', reject);
    sent.end();
  });
}

const status = async (test: TestServer, headers?: Record<string, string>): Promise<number> =>
  (await ask(test.url, headers)).status;

test('SEC-1: before the first key, a program on this machine is answered; proxies and other pages are told to make a key', async () => {
  const test = await server();
  const { host, port } = new URL(test.url);
  expect(await status(test)).toBe(200);
  expect(await status(test, { origin: test.url, 'sec-fetch-site': 'same-origin' })).toBe(200);
  expect(await status(test, { host: `localhost:${port}`, origin: `http://localhost:${port}` })).toBe(200);
  const refused: Record<string, string>[] = [
    { host: 'evil.example' },
    { host: `evil.example:${port}` },
    { host: 'localhost.evil.example' },
    { origin: 'http://evil.example' },
    { origin: 'null' },
    // Another program of this machine, another scheme: another origin.
    { origin: 'http://127.0.0.1:1' },
    { origin: `http://localhost:${port}` },
    { origin: `https://${host}` },
    { 'sec-fetch-site': 'cross-site' },
    { 'sec-fetch-site': 'same-site' },
    { forwarded: 'for=203.0.113.9' },
    { via: '1.1 proxy' },
    { 'x-forwarded-for': '203.0.113.9' },
    { 'x-forwarded-proto': 'https' },
    { 'x-forwarded-host': 'localhost' },
    { 'x-forwarded': 'for=127.0.0.1' },
    { 'x-real-ip': '127.0.0.1' },
    { 'cf-connecting-ip': '203.0.113.9' },
  ];
  for (const headers of refused) {
    const answer = await ask(test.url, headers);
    expect([headers, answer.status]).toEqual([headers, 401]);
    expect(answer.message).toContain('tallyman keys create');
  }
});

test('SEC-1: a trusted proxy on this machine is a proxy all the same', async () => {
  const test = await server({ config: { 'server.trustedProxies': '127.0.0.1,::1' } });
  expect(await status(test)).toBe(200);
  for (const headers of [
    { 'x-forwarded-for': '127.0.0.1' },
    { 'x-forwarded-for': '' },
    { 'x-forwarded-proto': 'http' },
    { 'x-forwarded-host': 'localhost' },
  ] as Record<string, string>[])
    expect([headers, await status(test, headers)]).toEqual([headers, 401]);
});

test('SEC-1: the first key closes the server for good: revoked, expired, deleted, and after a restart', async () => {
  const test = await server();
  expect(await status(test)).toBe(200);
  const other = await test.again();
  const { apiKey } = await test.keys.create({ tenantId: 'default', name: 'first', role: 'admin' });
  expect([await status(test), (await ask(other.url)).status]).toEqual([401, 401]);
  await test.keys.revoke(apiKey.id);
  expect([await status(test), (await ask(other.url)).status]).toEqual([401, 401]);
  await test.rows('delete from tallyman_server.api_keys');
  await test.tallyman.database.transaction(async (tx) => {
    await tx.query(`set local tallyman_server.audit_retention = 'on'`);
    await tx.query('delete from tallyman_server.audit_events');
  });
  expect([await status(test), (await ask(other.url)).status]).toEqual([401, 401]);
  const restarted = await test.again();
  expect(restarted.locked).toBe(true);
  expect((await ask(restarted.url)).status).toBe(401);
  expect((await ask(restarted.url)).message).toContain('tallyman keys create');
});

test('SEC-1: a key that has always been expired closes it, too; one that was rolled back does not', async () => {
  const test = await server();
  const { database } = test.tallyman;
  await expect(
    database.transaction(async (tx) => {
      await new ApiKeys(tx, test.box).create({ tenantId: 'default', name: 'k', role: 'admin' });
      throw new Error('rolled back');
    }),
  ).rejects.toThrow('rolled back');
  expect(await status(test)).toBe(200);
  await test.keys.create({ tenantId: 'default', name: 'k', role: 'admin', expiresAt: new Date(0) });
  expect(await status(test)).toBe(401);
});

test('SEC-1: tenants cannot remove the note that a key has existed', async () => {
  const test = await server();
  const admin = await test.as('admin');
  expect((await admin('POST', '/v1/keys', { name: 'k', role: 'auditor' })).status).toBe(201);
  const tried = test.tallyman.database.transaction(async (tx) => {
    await tx.query(takeTenantRole);
    await tx.query('delete from tallyman_server.first_key');
  });
  await expect(tried).rejects.toMatchObject({ code: '42501' });
});

test('SEC-1: the peer is looked at, whatever the request says of itself', () => {
  const headers = { host: 'localhost:8420' };
  const of = (peer: string | undefined) => notLocal({ protocol: 'http', peer, headers });
  for (const peer of ['127.0.0.1', '127.8.8.8', '::1', '::ffff:127.0.0.1'])
    expect([peer, of(peer)]).toEqual([peer, undefined]);
  for (const peer of [
    '10.0.0.1',
    '203.0.113.9',
    '::ffff:10.0.0.1',
    'fe80::1%eth0',
    '0.0.0.0',
    '::',
    '',
    undefined,
  ])
    expect([peer, of(peer)]).toEqual([peer, 'it comes from another machine']);
  expect(isLoopbackAddress('localhost')).toBe(false);
});
