import { connectAsync } from 'mqtt';
import { expect, onTestFinished, test } from 'vitest';
import { Database } from '../../src/engine/database/database.ts';
import { SecretBox } from '../../src/secrets/box.ts';
import { ApiKeys } from '../../src/server/access/keys.ts';
import { readExposition } from '../observability/exposition.ts';
import { until } from '../support/engine.ts';
import { emptyDatabase } from '../support/postgres.ts';
import { privateMosquitto } from '../support/services/mosquitto.ts';
import { scratch, start } from './support.ts';

const epc = '3314257BF40C0E4000000190';

test('a locked table is seen: metrics move, an alert would fire, health is degraded, and it all ends with the lock', {
  timeout: 300_000,
}, async () => {
  const broker = await privateMosquitto();
  onTestFinished(() => broker[Symbol.asyncDispose]());
  await broker.start();
  const { url: databaseUrl, drop } = await emptyDatabase();
  const master = Buffer.alloc(32, 1);
  const serving = start('src/cli/main.ts', ['serve', '--only', 'api,rfid', '--port', '0', '--migrate'], {
    cwd: await scratch(),
    env: {
      DATABASE_URL: databaseUrl,
      TALLYMAN_SECRET_KEY: master.toString('base64'),
      MQTT_BROKER_HOST: '127.0.0.1',
      MQTT_BROKER_PORT: String(broker.port),
      MQTT_SUBSCRIBE_TOPICS: 'zebra/fx/+/reads',
      MQTT_STALLED_AFTER_SECONDS: '2',
      MQTT_RECEIVE_MAXIMUM: '10',
    },
  });
  const url = await serving.said(/"url":"(http:[^"]+)"/);
  const database = await Database.connect({ url: databaseUrl });
  const locker = await database.dedicated('locker');
  onTestFinished(async () => {
    await locker.end();
    await database.close();
    serving.child.kill('SIGTERM');
    await serving.ended;
    await drop();
  });
  const keys = new ApiKeys(database, new SecretBox(master));
  const { key } = await keys.create({ tenantId: 'default', name: 'monitoring', role: 'auditor' });
  const get = (path: string) => fetch(`${url}${path}`, { headers: { authorization: `Bearer ${key}` } });
  const metric = async (name: string): Promise<number> => {
    const families = readExposition(await (await get('/metrics')).text());
    return families.get(name)?.samples[0]?.value ?? Number.NaN;
  };
  const ready = async () => {
    const response = await get('/v1/health/ready');
    return (await response.json()) as {
      status: string;
      checks: Record<string, { status: string; reason?: string }>;
    };
  };
  await until('it is ready', async () => (await ready()).status === 'ready');
  expect(await ready()).toMatchObject({ status: 'ready', checks: { intake: { status: 'up' } } });

  await locker.query('begin');
  await locker.query('lock table rfid.baskets in access exclusive mode');
  const publisher = await connectAsync(broker.url, { clientId: 'reader' });
  onTestFinished(() => publisher.endAsync(true));
  const device = await database.query(
    `with l as (insert into iot.locations (tenant_id, name) values ('default', 'dock') returning id)
     insert into iot.devices (tenant_id, serial, name, location_id) select 'default', 'fx-1', 'fx-1', id from l`,
  );
  expect(device.rowCount).toBe(1);
  for (let i = 0; i < 12; i += 1)
    await publisher.publishAsync(
      'zebra/fx/fx-1/reads',
      JSON.stringify({ timestamp: new Date().toISOString(), data: { idHex: epc, eventNum: i } }),
      { qos: 1 },
    );
  await until(
    'the age is above the limit',
    async () => (await metric('tallyman_mqtt_oldest_in_flight_seconds')) > 2,
  );
  await until('as many as may be are in flight', async () => (await metric('tallyman_mqtt_in_flight')) >= 10);
  expect(await ready()).toMatchObject({
    status: 'degraded',
    checks: {
      database: { status: 'up' },
      intake: { status: 'down', reason: expect.stringMatching(/not committed.*the oldest for \d+ s/) },
    },
  });

  await locker.query('commit');
  // Those that were not in flight come when there is room for them.
  await until(
    'all is committed',
    async () =>
      (await metric('tallyman_mqtt_messages_total')) === 12 &&
      (await metric('tallyman_mqtt_in_flight')) === 0,
  );
  expect(await metric('tallyman_mqtt_oldest_in_flight_seconds')).toBe(0);
  expect((await ready()).status).toBe('ready');
  expect(await metric('tallyman_mqtt_messages_total')).toBe(12);
});
