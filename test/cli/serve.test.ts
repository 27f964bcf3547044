import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { connectAsync } from 'mqtt';
import { expect, onTestFinished, test } from 'vitest';
import { until } from '../support/engine.ts';
import { emptyDatabase } from '../support/postgres.ts';
import { privateMosquitto } from '../support/services/mosquitto.ts';
import { inRoot, scratch, start } from './support.ts';

async function place(more: Record<string, string> = {}) {
  const { url } = await emptyDatabase();
  const cwd = await scratch();
  const env = { DATABASE_URL: url, TALLYMAN_SECRET_KEY: Buffer.alloc(32, 1).toString('base64'), ...more };
  const cli = (...args: string[]) => start('src/cli/main.ts', args, { cwd, env });
  return { cwd, cli, env };
}

test('serve runs the API, the worker and deliveries; SIGTERM lets what runs finish', async () => {
  const { cwd, cli } = await place();
  const module = join(cwd, 'kinds.ts');
  await writeFile(
    module,
    `import { defineKind } from ${JSON.stringify(inRoot('src/index.ts'))};
     export const slow = defineKind({ name: 'slow', public: true, handler: async () => {
       console.log('running');
       await new Promise((done) => setTimeout(done, 1500));
       console.log('finished');
     } });`,
  );
  const serving = cli('serve', '--port', '0', '--migrate', '--kinds', module);
  const url = await serving.said(/"url":"(http:[^"]+)"/);
  await serving.said(/"webhooks +deliveries, 50 at a time"/);
  await serving.said(/"worker +slow"/);
  const post = async (path: string, body: unknown) =>
    (
      await fetch(url + path, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      })
    ).status;
  await until('the kind is registered', async () => (await post('/v1/jobs', { kind: 'slow' })) === 201);
  await serving.said('running');
  serving.child.kill('SIGTERM');
  expect(await serving.ended).toMatchObject({ code: 0, stdout: expect.stringContaining('finished') });
});

test('serve --only runs a part alone', async () => {
  const { cli } = await place();
  const serving = cli('serve', '--only', 'webhooks', '--migrate');
  await serving.said('"parts":["webhooks"]');
  await serving.said('worker started');
  expect(await cli('serve', '--only', 'apu').ended).toMatchObject({
    code: 2,
    stderr: expect.stringContaining('there is no part "apu"'),
  });
  serving.child.kill('SIGTERM');
  expect(await serving.ended).toMatchObject({ code: 0 });
});

test('serve --only may be repeated: it runs all of the named parts', async () => {
  const { cli } = await place();
  const serving = cli('serve', '--only', 'api', '--only', 'webhooks,api', '--port', '0', '--migrate');
  await serving.said('"parts":["api","webhooks"]');
  serving.child.kill('SIGTERM');
  expect(await serving.ended).toMatchObject({ code: 0 });
});

test('a second signal ends it at once, whatever runs', async () => {
  const { cwd, cli } = await place();
  const module = join(cwd, 'kinds.ts');
  await writeFile(
    module,
    `import { defineKind } from ${JSON.stringify(inRoot('src/index.ts'))};
     export const endless = defineKind({ name: 'endless', public: true, handler: () => {
       console.log('running');
       return new Promise((done) => setTimeout(done, 600_000));
     } });`,
  );
  const serving = cli('serve', '--port', '0', '--migrate', '--kinds', module);
  const url = await serving.said(/"url":"(http:[^"]+)"/);
  await until('the job is taken', async () => {
    const body = JSON.stringify({ kind: 'endless' });
    const headers = { 'content-type': 'application/json' };
    return (await fetch(`${url}/v1/jobs`, { method: 'POST', headers, body })).status === 201;
  });
  await serving.said('running');
  serving.child.kill('SIGTERM');
  await serving.said('stopping; what runs has 30 s');
  // Within a moment it would be taken for an echo of the first.
  await sleep(1000);
  serving.child.kill('SIGTERM');
  expect(await serving.ended).toMatchObject({ code: 143 });
});

test('serve refuses to listen wide without a key, and a port that is taken, in one line', async () => {
  const { cli } = await place();
  const wide = await cli('serve', '--host', '0.0.0.0', '--migrate').ended;
  expect(wide.code).not.toBe(0);
  expect(wide.stderr).toContain('There are no API keys');
  expect(wide.stderr).not.toMatch(/\n +at /);
  const first = cli('serve', '--only', 'api', '--port', '0');
  const port = await first.said(/"url":"http:[^"]+:(\d+)"/);
  const second = await cli('serve', '--only', 'api', '--port', port).ended;
  expect(second.stderr).toContain(`Cannot listen on 127.0.0.1:${port}`);
  first.child.kill('SIGTERM');
  await first.ended;
});

test('tenants and keys: made, listed, revoked; the key is shown once, on stdout alone', async () => {
  const { cli } = await place();
  expect(await cli('migrate').ended).toMatchObject({ code: 0 });
  expect(await cli('tenants', 'create', 'acme', '--name', 'Acme').ended).toMatchObject({
    code: 0,
    stdout: 'tenant "acme" is made\n',
  });
  expect(await cli('tenants', 'create', 'acme').ended).toMatchObject({
    stderr: expect.stringContaining('already'),
  });
  expect((await cli('tenants', 'create', 'Not OK').ended).stderr).toContain('small letters');
  const made = await cli('keys', 'create', '--name', 'dock', '--role', 'producer', '--tenant', 'acme').ended;
  expect(made.stdout).toMatch(/^tlm_[a-z0-9]{12}_[\w-]{43}\n$/);
  const { items } = JSON.parse((await cli('keys', 'list', '--json').ended).stdout);
  expect(items).toMatchObject([{ name: 'dock', role: 'producer', tenant_id: 'acme', revoked_at: null }]);
  expect((await cli('keys', 'list').ended).stdout).toMatch(/KEY +NAME +TENANT +ROLE +STATE/);
  expect(await cli('keys', 'revoke', items[0].id).ended).toMatchObject({ code: 0 });
  expect((await cli('keys', 'list').ended).stdout).toContain('revoked');
  expect((await cli('keys', 'revoke', 'nobody').ended).stderr).toContain('there is no key "nobody"');
  expect((await cli('keys', 'create', '--name', 'x', '--role', 'king').ended).code).toBe(2);
  expect(
    (await cli('keys', 'create', '--name', 'x', '--role', 'admin', '--tenant', 'none').ended).stderr,
  ).toContain('there is no tenant "none"');
});

test('MQTT-5, RFID-1: a read that is published at a broker is a basket in the API', async () => {
  const broker = await privateMosquitto();
  onTestFinished(() => broker[Symbol.asyncDispose]());
  await broker.start();
  const { cli } = await place({
    MQTT_BROKER_HOST: '127.0.0.1',
    MQTT_BROKER_PORT: String(broker.port),
    MQTT_SUBSCRIBE_TOPICS: 'zebra/fx/+/reads',
  });
  const serving = cli('serve', '--only', 'api,rfid', '--port', '0', '--migrate');
  const url = await serving.said(/"url":"(http:[^"]+)"/);
  const ask = async (method: string, path: string, body?: unknown) => {
    const response = await fetch(url + path, {
      method,
      ...(body !== undefined && {
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(body),
      }),
    });
    // biome-ignore lint/suspicious/noExplicitAny: whatever the server said
    return { status: response.status, body: (await response.json()) as any };
  };
  const dock = await ask('POST', '/v1/locations', { name: 'dock 1' });
  await ask('PUT', '/v1/devices/fx-1', { location_id: dock.body.id, role: 'dock-door' });
  await until(
    'it is connected to the broker',
    async () => (await ask('GET', '/v1/health/ready')).body.checks.mqtt.status === 'up',
  );
  const publisher = await connectAsync(broker.url, { clientId: 'reader' });
  const epc = '3314257BF40C0E4000000190';
  const read = {
    type: 'SIMPLE',
    timestamp: new Date().toISOString(),
    data: { idHex: epc, antenna: 1, eventNum: 1 },
  };
  await publisher.publishAsync('zebra/fx/fx-1/reads', JSON.stringify(read), { qos: 2 });
  await publisher.publishAsync('zebra/fx/fx-1/reads', '{"not": "a read"', { qos: 2 });
  await publisher.endAsync();
  await until('the basket is there', async () => (await ask('GET', `/v1/baskets/${epc}`)).status === 200);
  expect((await ask('GET', `/v1/baskets/${epc}`)).body.location_id).toBe(dock.body.id);
  await until('the other is a dead letter', async () => {
    const { items } = (await ask('GET', '/v1/dead-letters?kind=iot.unreadable-message')).body;
    return items.length === 1;
  });
  await until('it is counted', async () =>
    (await (await fetch(`${url}/metrics`)).text()).includes(
      'tallyman_reads_total{path="mqtt",outcome="processed"} 1\n',
    ),
  );
  serving.child.kill('SIGTERM');
  expect(await serving.ended).toMatchObject({ code: 0 });
});

test('three serve that start at once on an empty database all come up', { timeout: 300_000 }, async () => {
  const { cli } = await place();
  const serving = [1, 2, 3].map(() => cli('serve', '--port', '0', '--migrate'));
  await Promise.all(serving.map((each) => each.said(/"url":"(http:[^"]+)"/)));
  for (const { child } of serving) child.kill('SIGTERM');
  expect((await Promise.all(serving.map(({ ended }) => ended))).map(({ code }) => code)).toEqual([0, 0, 0]);
});

test('MQTT-1: two instances on one host share the messages of a group, each with its own instance id', {
  timeout: 300_000,
}, async () => {
  const broker = await privateMosquitto();
  onTestFinished(() => broker[Symbol.asyncDispose]());
  await broker.start();
  const mqtt = {
    MQTT_BROKER_HOST: '127.0.0.1',
    MQTT_BROKER_PORT: String(broker.port),
    MQTT_SUBSCRIBE_TOPICS: 'zebra/fx/+/reads',
    MQTT_SHARED_SUBSCRIPTION_GROUP: 'reads',
    MQTT_ENVIRONMENT_ID: 'test',
  };
  const { cwd, env } = await place();
  const serving = ['a', 'b'].map((MQTT_INSTANCE_ID) =>
    start('src/cli/main.ts', ['serve', '--only', 'api,rfid', '--port', '0', '--migrate'], {
      cwd,
      env: { ...env, ...mqtt, MQTT_INSTANCE_ID },
    }),
  );
  const urls = await Promise.all(serving.map((each) => each.said(/"url":"(http:[^"]+)"/)));
  await Promise.all(serving.map((each, i) => each.said(`mqtt-processor-test-${'ab'[i]}`)));
  const publisher = await connectAsync(broker.url, { clientId: 'reader' });
  const count = 40;
  for (let i = 0; i < count; i += 1)
    await publisher.publishAsync('zebra/fx/fx-1/reads', JSON.stringify({ not: i }), { qos: 2 });
  await publisher.endAsync();
  const taken = () =>
    Promise.all(
      urls.map(async (url) => {
        const text = await (await fetch(`${url}/metrics`)).text();
        return Number(/^tallyman_mqtt_messages_total (\d+)$/m.exec(text)?.[1]);
      }),
    );
  await until('all are taken', async () => (await taken()).reduce((sum, n) => sum + n, 0) === count);
  expect(Math.min(...(await taken()))).toBeGreaterThan(0);
  for (const { child } of serving) child.kill('SIGTERM');
  expect((await Promise.all(serving.map(({ ended }) => ended))).map(({ code }) => code)).toEqual([0, 0]);
});
