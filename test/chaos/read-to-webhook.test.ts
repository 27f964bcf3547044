/**
 * The whole way: a tag read is published at a broker, and an endpoint is told that a basket moved. The process that does all of it
 * is killed at each point where something is written or sent; what it leaves behind is finished by the next one.
 */
import { randomBytes } from 'node:crypto';
import { connectAsync } from 'mqtt';
import { expect, onTestFinished, test } from 'vitest';
import { registerDoors } from '../../src/apps/rfid/intake/doors.ts';
import { Webhooks } from '../../src/apps/webhooks/webhooks.ts';
import { silentLogger } from '../../src/engine/logger.ts';
import { Tallyman } from '../../src/engine/tallyman.ts';
import { apps } from '../../src/host/apps.ts';
import { componentsOf } from '../../src/host/components.ts';
import { SecretBox } from '../../src/secrets/box.ts';
import { basketTag } from '../../src/simulate/tags.ts';
import { ok, type Reply, receiver } from '../apps/webhooks/support/receiver.ts';
import { start } from '../cli/support.ts';
import { emptyDatabase } from '../support/postgres.ts';
import { privateMosquitto } from '../support/services/mosquitto.ts';
import { until } from '../support/until.ts';

const baskets = 5;

/** Where the process is when it is killed: it waits for a table that is locked, or the receiver has its request. */
type FaultPoint =
  | { readonly at: string; readonly table: string }
  | { readonly at: string; readonly reply: Reply }
  | { readonly at: string; readonly row: string };

const silence: Reply = () => {};

test.each<FaultPoint>([
  { at: 'the read is about to be written', table: 'iot.tag_reads' },
  { at: 'the movement is about to be written', table: 'rfid.movements' },
  { at: 'the event is about to be written', table: 'tallyman_events.events' },
  { at: 'the event has just been committed', row: 'select 1 from tallyman_events.events' },
  { at: 'the delivery is about to be written', table: 'tallyman_webhooks.dispatches' },
  { at: 'the receiver has the request', reply: silence },
  { at: 'the answer is about to be written', table: 'tallyman_webhooks.webhook_deliveries' },
])(
  'MQTT-5, RFID-16, WH-1: killed when $at: each movement is told once',
  { timeout: 300_000 },
  async (point) => {
    const { url, drop } = await emptyDatabase();
    const master = randomBytes(32);
    const tallyman = await Tallyman.open({
      databaseUrl: url,
      migrate: true,
      components: componentsOf(apps),
      logger: silentLogger,
    });
    const broker = await privateMosquitto();
    onTestFinished(async () => {
      await broker[Symbol.asyncDispose]();
      await tallyman.close();
      await drop();
    });
    await broker.start();
    const { database } = tallyman;
    const count = async (sql: string): Promise<number> => (await database.query(sql)).rows.length;
    await registerDoors(database, ['dock-1']);
    const firstReply = 'reply' in point ? point.reply : ok;
    const hook = await receiver((request, response, nth) =>
      (nth === 1 ? firstReply : ok)(request, response, nth),
    );
    const webhooks = new Webhooks(database, {
      box: new SecretBox(master),
      policy: { allowPrivate: true, requireHttps: false },
    });
    await webhooks.add({ url: hook.url, eventTypes: ['rfid.movement'], retryDelays: [1, 1, 1, 1] });

    const launch = () =>
      start('src/cli/main.ts', ['serve', '--only', 'webhooks,rfid'], {
        env: {
          DATABASE_URL: url,
          TALLYMAN_SECRET_KEY: master.toString('base64'),
          TALLYMAN_WEBHOOKS_ALLOW_PRIVATE: 'true',
          TALLYMAN_WEBHOOKS_REQUIRE_HTTPS: 'false',
          MQTT_BROKER_HOST: '127.0.0.1',
          MQTT_BROKER_PORT: String(broker.port),
          MQTT_ENVIRONMENT_ID: 'test',
          MQTT_SUBSCRIBE_TOPICS: 'zebra/fx/+/reads',
          MQTT_INSTANCE_ID: 'one',
        },
      });
    const victim = launch();
    await victim.said('"serving"');
    const locker = await database.dedicated('holds a table');
    onTestFinished(() => locker.end());
    if ('table' in point) await locker.query(`begin; lock table ${point.table} in share mode`);

    const publisher = await connectAsync(broker.url, { clientId: 'reader' });
    for (let n = 1; n <= baskets; n += 1)
      await publisher.publishAsync(
        'zebra/fx/dock-1/reads',
        JSON.stringify({
          type: 'SIMPLE',
          timestamp: new Date().toISOString(),
          data: { idHex: basketTag(n), antenna: 1, eventNum: n },
        }),
        { qos: 2 },
      );
    await publisher.endAsync();
    await until(point.at, async () => {
      if ('reply' in point) return hook.requests.length > 0;
      if ('row' in point) return (await count(point.row)) > 0;
      return (
        (await count(`select 1 from pg_locks where relation = '${point.table}'::regclass and not granted`)) >
        0
      );
    });
    victim.child.kill('SIGKILL');
    await victim.ended;
    if ('table' in point) await locker.query('rollback');

    launch();
    const told = () => new Set(hook.requests.map(({ headers }) => headers['webhook-id']));
    await until('every movement is told', () => told().size >= baskets, 90_000);
    await until(
      'nothing is left to do',
      async () => (await count('select 1 from tallyman.jobs')) === 0,
      60_000,
    );
    const moved = hook.requests.map(({ body }) => JSON.parse(body.toString()).aggregate_id);
    expect(new Set(moved).size).toBe(baskets);
    expect(told().size).toBe(baskets);
    expect(await count('select 1 from rfid.movements')).toBe(baskets);
    expect(await count(`select 1 from tallyman_events.events where event_type = 'rfid.movement'`)).toBe(
      baskets,
    );
    expect(await count('select 1 from tallyman_webhooks.dispatches')).toBe(baskets);
    expect(await tallyman.check()).toEqual([]);
  },
);
