import { writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { until } from '../support/engine.ts';
import { emptyDatabase } from '../support/postgres.ts';
import { inRoot, scratch, start } from './support.ts';

/** Nothing listens there: what fails is what logs most. */
const nowhere = '127.0.0.1:9';

/** The part of a key that nobody may see; it may have underscores itself. */
const secretOf = (key: string): string => key.split('_').slice(2).join('_');

test('SEC-9: a full run that logs everything tells no secret', async () => {
  const { url } = await emptyDatabase();
  const database = new URL(url);
  // A server that wants no password takes any.
  if (database.password === '') database.password = 'database-password-1';
  const master = Buffer.alloc(32, 77).toString('base64');
  const secrets = new Map<string, string>([
    ['master secret', master],
    ['password of the database', decodeURIComponent(database.password)],
    ['password of RabbitMQ', 'rabbit-password-2'],
    ['password of NATS', 'nats-password-3'],
    ['password of Redis', 'redis-password-4'],
    ['password of the MQTT broker', 'mqtt-password-5'],
    ['password of a gateway', 'gateway-password-6'],
    ['payload of a job', 'payload-secret-7'],
    ['a key that is not known', `tlm_${'a'.repeat(12)}_${'b'.repeat(43)}`],
  ]);
  const of = (name: string): string => secrets.get(name) ?? '';
  const cwd = await scratch();
  const module = join(cwd, 'kinds.ts');
  await writeFile(
    module,
    `import { defineKind } from ${JSON.stringify(inRoot('src/index.ts'))};
     export const failing = defineKind({ name: 'failing', public: true, maxAttempts: 1, handler: () => {
       throw new Error('it fails');
     } });`,
  );
  const env = {
    DATABASE_URL: database.href,
    TALLYMAN_SECRET_KEY: master,
    TALLYMAN_LOG_LEVEL: 'debug',
    TALLYMAN_DEBUG: '1',
    TALLYMAN_WEBHOOKS_REQUIRE_HTTPS: 'false',
    TALLYMAN_WEBHOOKS_ALLOW_PRIVATE: 'true',
    TALLYMAN_RABBITMQ_ENABLED: 'true',
    TALLYMAN_RABBITMQ_URL: `amqp://u:${of('password of RabbitMQ')}@${nowhere}`,
    TALLYMAN_NATS_SERVERS: `nats://u:${of('password of NATS')}@${nowhere}`,
    TALLYMAN_REDIS_URL: `redis://:${of('password of Redis')}@${nowhere}`,
    MQTT_BROKER_HOST: '127.0.0.1',
    MQTT_BROKER_PORT: '9',
    MQTT_USERNAME: 'plant',
    MQTT_PASSWORD: of('password of the MQTT broker'),
    MQTT_ENVIRONMENT_ID: 'test',
    MQTT_SUBSCRIBE_TOPICS: 'a/#',
  };
  const cli = (...args: string[]) => start('src/cli/main.ts', args, { cwd, env });
  expect(await cli('migrate').ended).toMatchObject({ code: 0 });
  const key = (await cli('keys', 'create', '--name', 'a', '--role', 'admin').ended).stdout.trim();
  secrets.set('an API key', secretOf(key));
  const serving = cli('serve', '--port', '0', '--kinds', module);
  const address = await serving.said(/"url":"(http:[^"]+)"/);
  const ask = async (method: string, path: string, body?: unknown, headers: Record<string, string> = {}) => {
    const answer = await fetch(address + path, {
      method,
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await answer.text();
    return { status: answer.status, body: text === '' ? undefined : JSON.parse(text) };
  };

  const receiver = createServer((_, response) => response.writeHead(500).end());
  await new Promise<void>((listening) => receiver.listen(0, '127.0.0.1', listening));
  onTestFinished(() => {
    receiver.close();
  });
  const { port } = receiver.address() as AddressInfo;
  const hook = await ask('POST', '/v1/webhooks', { url: `http://127.0.0.1:${port}/hook` });
  expect(hook.status).toBe(201);
  secrets.set('secret of a webhook', hook.body.secret);
  expect(await ask('POST', `/v1/webhooks/${hook.body.id}/ping`)).toMatchObject({ status: 202 });
  const made = await ask('POST', '/v1/keys', { name: 'k', role: 'auditor' }, { 'idempotency-key': 'k' });
  secrets.set('a key made over the API', secretOf(made.body.key));
  await ask('POST', '/v1/keys', { name: 'k', role: 'auditor' }, { 'idempotency-key': 'k' });
  const gateway = {
    kind: 'aims',
    url: `http://${nowhere}`,
    company: 'c',
    store: 's',
    username: 'u',
    password: of('password of a gateway'),
  };
  expect((await ask('PUT', '/v1/stores/s1', { gateway })).status).toBeLessThan(300);
  expect((await ask('PUT', '/v1/stores/s2', { gateway: { ...gateway, url: 'not a url' } })).status).toBe(400);
  const stranger = { authorization: `Bearer ${of('a key that is not known')}` };
  expect((await ask('GET', '/v1/jobs', undefined, stranger)).status).toBe(401);
  await until('the kind is registered', async () => {
    const job = { kind: 'failing', payload: { token: of('payload of a job') } };
    return (await ask('POST', '/v1/jobs', job)).status === 201;
  });
  await serving.said('it fails');
  await serving.said(/MQTT[^\n]*(refused|unreachable|ECONNREFUSED)/i);
  serving.child.kill('SIGTERM');
  const { stdout, stderr, code } = await serving.ended;
  expect(code).toBe(0);
  const told = stdout + stderr;
  expect(told).toContain('"level":20');
  for (const [name, secret] of secrets) {
    expect(secret.length, name).toBeGreaterThan(8);
    for (const form of [secret, encodeURIComponent(secret), Buffer.from(secret).toString('base64')])
      expect(told.includes(form), `the log tells the ${name}`).toBe(false);
  }
});
