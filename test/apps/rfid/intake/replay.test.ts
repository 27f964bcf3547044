import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import { parseZebraReads, storeTagReads } from '../../../../src/apps/iot/index.ts';
import { replayOf } from '../../../../src/apps/rfid/intake/replay.ts';
import { transmissions } from '../../../../src/simulate/readers.ts';
import { Truth } from '../../../../src/simulate/truth.ts';
import type { Instance } from '../../../chaos/plant-instance.ts';
import { doors, Environment } from '../../../chaos/plant-scene.ts';
import { until } from '../../../support/engine.ts';
import { emptyDatabase } from '../../../support/postgres.ts';
import { seededRandom } from '../../../support/seeded-random.ts';
import type { Mosquitto } from '../../../support/services/mosquitto.ts';
import { broker, publishAll, publisher } from '../../iot/mqtt/support.ts';

const reads = 1500;
const kills = 3;

interface Scene {
  readonly plant: Environment;
  readonly mosquitto: Mosquitto;
  readonly instance: Instance;
  readonly messages: readonly (readonly [topic: string, payload: string])[];
  readonly truth: Truth;
  readonly beganAt: number;
}

/** Reads that somebody else has collected in `iot`, and that readers are about to publish. */
async function scene(seed: number): Promise<Scene> {
  const { url, drop } = await emptyDatabase();
  onTestFinished(drop);
  const plant = await Environment.at(url, 'plant');
  const mosquitto = await broker();
  const instance = plant.instance(mosquitto.port, 'only');
  const truth = new Truth();
  const beganAt = Date.now() - 60_000;
  const messages: [string, string][] = [];
  for (const { topic, reads: seen, payload } of transmissions({
    seed,
    devices: doors,
    baskets: 60,
    rate: 100,
  })) {
    if (truth.figures.distinctReads >= reads) break;
    if (messages.some(([, text]) => text === payload(beganAt))) continue;
    messages.push([topic, payload(beganAt)]);
    truth.sent(seen, false);
  }
  const raw = messages.flatMap(
    ([topic, payload]) => parseZebraReads(topic, Buffer.from(payload), { tenantId: 'default' }).reads,
  );
  await storeTagReads(plant.tallyman.database, raw);
  return { plant, mosquitto, instance, messages, truth, beganAt };
}

/** Published, taken in by a process that is killed meanwhile, until all of them are in `iot` a second time. */
async function byMqtt({ plant, mosquitto, instance, messages, truth }: Scene): Promise<void> {
  const random = seededRandom();
  await instance.start();
  const publishing = publishAll(await publisher(mosquitto.port), messages, 2);
  for (let kill = 0; kill < kills; kill += 1) {
    await sleep(random.between(0, 300));
    await instance.kill();
    await instance.start();
  }
  await publishing;
  const all = 2 * truth.figures.distinctReads;
  const collected = async (): Promise<number> =>
    (await plant.rows<{ n: number }>('select count(*)::integer as n from iot.tag_reads'))[0]?.n ?? 0;
  await until('all messages are in', async () => (await collected()) >= all, 300_000);
}

/** To the end, while its sessions are killed in the middle of their work. */
async function byReplay({ plant }: Scene): Promise<void> {
  const { tallyman } = plant;
  const reaper = await tallyman.database.dedicated('reaper');
  let killed = 0;
  let over = false;
  const reaping = (async () => {
    while (!over && killed < kills) {
      const { rowCount } = await reaper.query(
        `select pg_terminate_backend(pid) from pg_stat_activity
          where datname = current_database() and application_name like '%exclusive section' and xact_start is not null`,
      );
      killed += rowCount ?? 0;
      await sleep(20);
    }
  })();
  for (;;) {
    const counts = await replayOf(tallyman)
      .catchUp()
      .catch(() => undefined);
    if (counts) break;
  }
  over = true;
  await reaping;
  await reaper.end();
}

type Way = (scene: Scene) => Promise<unknown>;
const orders: readonly [string, Way][] = [
  ['MQTT first', async (it) => byMqtt(it).then(() => byReplay(it))],
  ['replay first', async (it) => byReplay(it).then(() => byMqtt(it))],
  ['at once', async (it) => Promise.all([byMqtt(it), byReplay(it)]).then(() => byReplay(it))],
];

describe('reads that come by a broker and by replay', () => {
  test.each(orders)(
    'RFID-2, RFID-9: %s, with crashes of both: one effect each',
    {
      timeout: 900_000,
    },
    async (_, run) => {
      const it = await scene(seededRandom().seed);
      await run(it);
      await it.plant.expectToBe(it.truth, it.beganAt);
      // Nothing is left for anybody: what both have collected is known.
      expect(await replayOf(it.plant.tallyman).catchUp()).toMatchObject({ processed: 0 });
    },
  );
});
