import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { webhookKinds } from '../../../src/apps/webhooks/delivery/kinds.ts';
import { webhookFollower } from '../../../src/apps/webhooks/follower.ts';
import { Webhooks } from '../../../src/apps/webhooks/webhooks.ts';
import { engineComponent } from '../../../src/engine/database/migrate.ts';
import { emit } from '../../../src/events/emit.ts';
import { apps } from '../../../src/host/apps.ts';
import { componentsOf } from '../../../src/host/components.ts';
import { SecretBox } from '../../../src/secrets/box.ts';
import { type Cli, cliOn, complaint, openTallyman } from '../../cli/support.ts';
import { until } from '../../support/engine.ts';
import { type FreshDatabase, freshDatabase } from '../../support/postgres.ts';
import { receiver, status } from './support/receiver.ts';
import { local } from './support/scene.ts';

const master = randomBytes(32);
const box = new SecretBox(master);
let fresh: FreshDatabase;
let cli: Cli;
let webhooks: Webhooks;

beforeAll(async () => {
  fresh = await freshDatabase([engineComponent, ...componentsOf(apps)]);
  webhooks = new Webhooks(fresh.database, { box, policy: local });
  cli = cliOn(fresh.url, {
    env: {
      TALLYMAN_SECRET_KEY: master.toString('base64'),
      TALLYMAN_WEBHOOKS_REQUIRE_HTTPS: 'false',
      TALLYMAN_WEBHOOKS_ALLOW_PRIVATE: '127.0.0.0/8',
    },
  });
});

afterAll(() => fresh.drop());

/** Delivers what there is. */
async function deliverAll(): Promise<void> {
  const tallyman = await openTallyman(fresh.url);
  await webhookFollower(tallyman.database).turn();
  const kinds = webhookKinds({ database: tallyman.database, box, policy: local });
  await tallyman.worker({ kinds, pollIntervalMs: 50 }).start();
  await until('all is delivered', async () => {
    return (await fresh.database.query('select 1 from tallyman.jobs')).rows.length === 0;
  });
  await tallyman.close();
}

test('WH-6: add shows the secret once; show and list never do; rotate shows the new one', async () => {
  const added = await cli(
    ...[
      'webhooks',
      'add',
      'http://127.0.0.1:9/hook',
      '--event',
      'pallet.*',
      'job.dead_letter',
      '--tenant',
      'acme',
    ],
    ...['--long-retries', '--ordered', '--description', 'the yard'],
  );
  const [, secret = ''] = /(whsec_\S+)/.exec(added.stdout) ?? [];
  expect(added).toMatchObject({ code: 0, stderr: '' });
  expect(secret).toHaveLength(50);
  const [endpoint] = (await webhooks.list({ tenantId: 'acme' })).items;
  expect(endpoint).toMatchObject({
    eventTypes: ['pallet.*', 'job.dead_letter'],
    maxAttempts: 8,
    ordered: true,
    description: 'the yard',
  });
  const id = endpoint?.id ?? '';
  const list = await cli('webhooks', 'list', '--tenant', 'acme');
  expect(list.stdout).toMatch(/^ *ID +STATE +URL +EVENTS +TENANT +DESCRIPTION\n/);
  expect(list.stdout).toContain('http://127.0.0.1:9/hook');
  const shown = await cli('webhooks', 'show', id);
  expect(shown.stdout).toContain('5, 300, 1800');
  for (const { stdout } of [list, shown, await cli('webhooks', 'show', id, '--json')])
    expect(stdout).not.toContain('whsec_');
  const rotated = JSON.parse((await cli('webhooks', 'rotate', id, '--keep-old', '1', '--json')).stdout);
  expect(rotated).toEqual({ id, secret: expect.stringMatching(/^whsec_/) });
  expect(rotated.secret).not.toBe(secret);
  expect((await webhooks.get(id))?.secrets).toHaveLength(2);
  expect(complaint(await cli('webhooks', 'show', id, '--tenant', 'other'))).toContain('of tenant "other"');
  expect(complaint(await cli('webhooks', 'remove', id))).toContain('add --yes');
  expect(await cli('webhooks', 'remove', id, '--yes')).toMatchObject({ code: 0 });
  expect((await webhooks.list({ tenantId: 'acme' })).items).toEqual([]);
});

test('WH-9: ping, deliveries and redelivery of one', async () => {
  const to = await receiver();
  const { endpoint } = await webhooks.add({ url: to.url });
  const pinged = await cli('webhooks', 'ping', endpoint.id);
  const [, deliveryId = ''] = /--delivery (\S+)/.exec(pinged.stdout) ?? [];
  await deliverAll();
  expect(to.requests[0]?.headers['x-bpc-delivery-id']).toBe(deliveryId);
  const table = await cli('webhooks', 'attempts', '--endpoint', endpoint.id, '--status', 'succeeded');
  expect(table.stdout).toMatch(new RegExp(`${deliveryId} +1 +SUCCEEDED +200 +webhook.ping`));
  const page = await cli('webhooks', 'attempts', '--delivery', deliveryId);
  expect(page.stdout).toContain('thanks');
  const again = await cli('webhooks', 'redeliver', deliveryId, '00000000-0000-4000-8000-000000000000');
  expect(again.code).toBe(3);
  expect(again.stdout).toContain(`delivery ${deliveryId} is sent again`);
  expect(again.stderr).toContain('there is no delivery 00000000');
  await deliverAll();
  expect(new Set(to.requests.map(({ headers }) => headers['webhook-id'])).size).toBe(1);
  expect(to.requests).toHaveLength(2);
  await webhooks.remove(endpoint.id);
});

test('WH-10: options of an endpoint, and the states of its deliveries, on the command line', async () => {
  let reply = status(500);
  const to = await receiver((...args) => reply(...args));
  const options = [
    ...['--secret', 'a secret of my own', '--filter', '[{"path": "bay", "prefix": "B"}]', '--ed25519'],
    ...['--header', 'Authorization: Bearer a:b', 'X-Plant: north', '--retry-delays', '3600', '--json'],
    ...['--tenant', 'options'],
  ];
  const added = JSON.parse((await cli('webhooks', 'add', to.url, ...options)).stdout);
  const { id } = added;
  expect(added).toMatchObject({
    secret: 'a secret of my own',
    filter: [{ path: 'bay', prefix: 'B' }],
    header_names: ['authorization', 'x-plant'],
    public_keys: [{ public_key: expect.stringMatching(/^whpk_/) }],
  });
  const shown = (await cli('webhooks', 'show', id)).stdout;
  expect(shown).toContain('whpk_');
  expect(shown).toContain('authorization, x-plant');
  expect(shown).not.toContain('Bearer');
  for (const bay of ['B7', 'C1'])
    await emit(fresh.database, {
      type: 'a',
      aggregateType: 't',
      aggregateId: '1',
      payload: { bay },
      tenantId: 'options',
    });
  const tallyman = await openTallyman(fresh.url);
  const worker = tallyman.worker({
    kinds: webhookKinds({ database: tallyman.database, box, policy: local }),
  });
  await webhookFollower(tallyman.database).turn();
  await worker.start();
  await until('it was tried', async () => (await webhooks.attempts({ endpointId: id })).items.length === 1);
  await tallyman.close();
  expect(to.requests[0]?.headers).toMatchObject({ authorization: 'Bearer a:b', 'x-plant': 'north' });
  const list = ['webhooks', 'deliveries', '--endpoint', id];
  expect((await cli(...list)).stdout).toMatch(/PENDING +1 +in (5\d|6\d) min|PENDING +1 +in 1 h/);
  const { items } = JSON.parse((await cli(...list, '--state', 'pending', '--json')).stdout);
  expect(items).toMatchObject([{ state: 'PENDING', attempts: 1, next_attempt_at: expect.any(String) }]);
  reply = status(204);
  await cli('webhooks', 'enable', id);
  await deliverAll();
  expect((await cli(...list, '--state', 'delivered')).stdout).toContain('DELIVERED');
  expect((await cli(...list, '--state', 'failed')).stdout).toBe('No deliveries.\n');
  const changed = [
    'webhooks',
    'change',
    id,
    '--no-filter',
    '--no-header',
    '--no-ed25519',
    '--event',
    'b.*',
    '--json',
  ];
  expect(JSON.parse((await cli(...changed)).stdout)).toMatchObject({
    filter: [],
    header_names: [],
    public_keys: [],
    event_types: ['b.*'],
    retry_delays_s: [3600],
  });
  const key = JSON.parse((await cli('webhooks', 'rotate', id, '--key', '--json')).stdout);
  expect(key).toEqual({ id, public_key: expect.stringMatching(/^whpk_/) });
  await webhooks.remove(id);
});

test('WH-9, WH-4: redelivery of a range after the endpoint was disabled by 410 and enabled again', async () => {
  let gone = true;
  const to = await receiver((...args) => (gone ? status(410) : status(204))(...args));
  const { endpoint } = await webhooks.add({ url: to.url });
  const from = new Date(Date.now() - 60_000).toISOString();
  await emit(fresh.database, { type: 'a', aggregateType: 't', aggregateId: '1', payload: {} });
  await deliverAll();
  expect((await cli('webhooks', 'list')).stdout).toContain('disabled');
  expect((await cli('webhooks', 'show', endpoint.id)).stdout).toContain('410 Gone');
  gone = false;
  const range = ['webhooks', 'redeliver', '--endpoint', endpoint.id, '--from', from];
  expect(complaint(await cli(...range))).toContain('enable it first');
  expect((await cli('webhooks', 'enable', endpoint.id)).stdout).toBe(
    `webhook endpoint ${endpoint.id} is enabled\n`,
  );
  expect((await cli(...range)).stdout).toBe('1 event sent again.\n');
  await deliverAll();
  expect(JSON.parse((await cli(...range, '--json')).stdout)).toEqual({ redelivered: 0 });
  expect(JSON.parse((await cli(...range, '--all', '--json')).stdout)).toEqual({ redelivered: 1 });
  expect((await cli('webhooks', 'disable', endpoint.id, '--reason', 'moves')).code).toBe(0);
  expect((await cli('webhooks', 'show', endpoint.id)).stdout).toContain('moves');
});

test.each([
  { args: ['add', 'https://10.0.0.1/'], says: '10.0.0.1 is private' },
  { args: ['add', 'nonsense'], says: 'is not a URL' },
  { args: ['add', 'https://example.com', '--retry-delays', '5,x'], says: 'Expected seconds' },
  { args: ['add', 'https://example.com', '--filter', 'bay = 7'], says: 'Expected JSON' },
  { args: ['add', 'https://example.com', '--header', 'nonsense'], says: 'expected a header' },
  { args: ['rotate', '1', '--key', '--secret', 'x'], says: 'not both' },
  { args: ['redeliver'], says: 'name delivery ids, or a range' },
  { args: ['redeliver', '--endpoint', '3'], says: 'name delivery ids, or a range' },
  { args: ['redeliver', 'x', '--endpoint', '3'], says: 'not both' },
  { args: ['redeliver', '--endpoint', '3', '--from', 'yesterday'], says: 'Expected a time' },
  { args: ['show', 'three'], says: '"three" is not an id' },
])('WH-9: webhooks $args is wrong usage', async ({ args, says }) => {
  const ended = await cli('webhooks', ...args);
  expect(complaint(ended)).toContain(says);
  expect(ended.code).toBe(2);
});
