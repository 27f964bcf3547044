import { setTimeout as sleep } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import type { EmbeddedPostgres } from '../../src/engine/database/embedded/index.ts';
import { driveReaders } from '../../src/simulate/drive.ts';
import { Publisher } from '../../src/simulate/publisher.ts';
import { Truth } from '../../src/simulate/truth.ts';
import { broker } from '../apps/iot/mqtt/support.ts';
import { until } from '../support/engine.ts';
import { privateServer } from '../support/postgres.ts';
import type { Random } from '../support/random.ts';
import { seededRandom } from '../support/seeded-random.ts';
import type { Mosquitto } from '../support/services/mosquitto.ts';
import { Gate, type Instance, killAlong } from './plant-instance.ts';
import { doors, Environment } from './plant-scene.ts';

const reads = 20_000;
const kills = 20;
/** It saves when it is asked to end, which is how it ends here; after every change it would be busy with nothing else. */
const savesAtItsEnd = { extra: ['autosave_on_changes false', 'autosave_interval 3600'] };

interface Storm {
  readonly mosquitto: Mosquitto;
  readonly server: EmbeddedPostgres;
  readonly instances: readonly Instance[];
  readonly random: Random;
  /**
   * Mosquitto 2.0.11 keeps the messages of shared groups over a restart, but forgets the groups: what is published before their members
   * subscribe again goes to nobody. So readers and killers hold still until they have.
   */
  readonly forgetsGroups?: boolean;
}

/** 20,000 reads while instances are killed, the broker is restarted twice and PostgreSQL once. Answers what was sent. */
async function storm({
  mosquitto,
  server,
  instances,
  random,
  forgetsGroups,
}: Storm): Promise<{ truth: Truth; beganAt: number }> {
  await Promise.all(instances.map((instance) => instance.start()));
  const publisher = await Publisher.connect(mosquitto.url);
  onTestFinished(() => publisher.close());
  const gate = new Gate();
  const truth = new Truth();
  let beganAt = 0;
  const progress = (): number => truth.figures.distinctReads / reads;
  const reaches = async (share: number): Promise<void> => {
    while (progress() < share) await sleep(10);
  };
  const sending = driveReaders({
    seed: random.seed,
    devices: doors,
    baskets: 300,
    rate: 1000,
    count: reads,
    duplicates: 0.05,
    outOfOrder: 0.05,
    publisher: { send: (...message) => gate.pass(() => publisher.send(...message)) },
    signal: new AbortController().signal,
    truth,
    onSend: (_, began) => {
      beganAt = began;
      return undefined;
    },
  });
  const restartBroker = async (share: number): Promise<void> => {
    await reaches(share);
    if (forgetsGroups) {
      await gate.close();
      expect(await publisher.flushed(60_000)).toBe(true);
    }
    await mosquitto.stop();
    const stoppedAt = Date.now();
    await sleep(random.between(0, 500));
    await mosquitto.start();
    if (!forgetsGroups) return;
    for (const instance of instances)
      await until('it has subscribed again', () => instance.subscribedSince(stoppedAt), 60_000);
    gate.open();
  };
  const restartPostgres = async (share: number): Promise<void> => {
    await reaches(share);
    // Immediate: nobody is asked, nothing is finished, the log is played back at the start.
    server.kill('SIGQUIT');
    await sleep(random.between(0, 500));
    await server.restart();
  };
  await Promise.all([
    sending,
    killAlong(instances, random, kills, { progress, gate }),
    restartBroker(random.between(0.2, 0.35)),
    restartBroker(random.between(0.6, 0.75)),
    restartPostgres(random.between(0.4, 0.55)),
  ]);
  expect(await publisher.flushed(60_000)).toBe(true);
  expect(publisher.acknowledged).toBe(truth.figures.messages);
  return { truth, beganAt };
}

test('MQTT-5, RFID-2: 20,000 reads, the consumer killed 20 times, the broker and PostgreSQL restarted: each counted once', {
  timeout: 600_000,
}, async () => {
  const random = seededRandom();
  const mosquitto = await broker(savesAtItsEnd);
  const server = await privateServer();
  const plant = await Environment.on(server, 'plant');
  const { truth, beganAt } = await storm({
    mosquitto,
    server,
    instances: [plant.instance(mosquitto.port, 'only')],
    random,
  });
  await plant.processed(truth.figures.distinctReads);
  await plant.expectToBe(truth, beganAt);
});

test('MQTT-1, MQTT-5, RFID-6: the same with two instances that share, and another environment: each environment has all, no instance has, their books are equal', {
  timeout: 600_000,
}, async () => {
  const random = seededRandom();
  const mosquitto = await broker(savesAtItsEnd);
  const server = await privateServer();
  const [plant, shadow] = [await Environment.on(server, 'plant'), await Environment.on(server, 'shadow')];
  const group = { sharedSubscriptionGroup: 'reads' };
  const { truth, beganAt } = await storm({
    mosquitto,
    server,
    instances: [
      plant.instance(mosquitto.port, 'plant-0', group),
      plant.instance(mosquitto.port, 'plant-1', group),
      shadow.instance(mosquitto.port, 'shadow-0', group),
    ],
    random,
    forgetsGroups: true,
  });
  for (const environment of [plant, shadow]) {
    await environment.processed(truth.figures.distinctReads);
    await environment.expectToBe(truth, beganAt);
  }
  expect(await plant.books()).toEqual(await shadow.books());
  expect(await plant.shares()).toEqual({ 'plant-0': expect.any(Number), 'plant-1': expect.any(Number) });
  expect(await shadow.shares()).toEqual({ 'shadow-0': truth.figures.distinctReads });
});
