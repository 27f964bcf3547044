/** From the broker: published by readers in another process at QoS 2, received, committed, acknowledged. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { iotComponent } from '../../../../src/apps/iot/component.ts';
import { MqttConsumer, type MqttSettings, mqttSettings } from '../../../../src/apps/iot/mqtt/index.ts';
import { rfidComponent } from '../../../../src/apps/rfid/component.ts';
import { readsTopic, startIntake } from '../../../../src/apps/rfid/intake/index.ts';
import { Tallyman } from '../../../../src/engine/tallyman.ts';
import { eventsComponent } from '../../../../src/events/component.ts';
import { type MosquittoServer, startMosquitto } from '../../../lib/mosquitto.ts';
import { endWithUs } from '../../../lib/processes.ts';
import { messagesOf } from '../messages.ts';
import type { PublisherTask } from '../publisher.ts';
import type { System } from './system.ts';

/** Messages that readers may be ahead. */
const AHEAD = 2000;

/** What takes messages in, and how far it is. */
interface Consumer {
  acknowledged(): number;
  stop(): Promise<void>;
}

function fromBroker(
  start: (settings: MqttSettings, url: string) => Promise<Consumer>,
  counts: boolean,
): System {
  let broker: MosquittoServer | undefined;
  let consumer: Consumer | undefined;
  let readers: ChildProcess | undefined;
  let messages = 0;
  return {
    connections: 2,
    counts,
    async prepare(_, size, url) {
      broker = await startMosquitto();
      const settings = mqttSettings({
        brokerHost: '127.0.0.1',
        brokerPort: broker.port,
        environmentId: 'bench',
        instanceId: '0',
        subscribeTopics: [readsTopic],
      });
      consumer = await start(settings, url);
      readers = fork(join(import.meta.dirname, '..', 'publisher.ts'), [], { stdio: ['ignore', 2, 2, 'ipc'] });
      endWithUs(readers);
      messages = [...messagesOf(size)].length;
      const task: PublisherTask = { port: broker.port, size };
      readers.send(task);
      await once(readers, 'message');
    },
    async run(_, __, halfway) {
      if (!consumer || !readers) throw new Error('it is not prepared');
      let isHalf = false;
      for (let done = 0; done < messages; done = consumer.acknowledged()) {
        readers.send(done + AHEAD);
        if (!isHalf && done >= messages / 2) {
          isHalf = true;
          halfway();
        }
        await sleep(10);
      }
    },
    async finish() {
      readers?.kill('SIGKILL');
      await consumer?.stop();
      await broker?.stop();
    },
  };
}

/** All the way: raw reads, baskets, movements, keys. */
export const tallymanMqtt = fromBroker(async (settings, url) => {
  const components = [eventsComponent, iotComponent, rfidComponent];
  const tallyman = await Tallyman.open({ databaseUrl: url, components, housekeeping: false });
  const intake = await startIntake({ tallyman, settings });
  return {
    acknowledged: () => intake.status().mqtt?.counters.acknowledged ?? 0,
    stop: async () => {
      await intake.stop();
      await tallyman.close();
    },
  };
}, true);

/** The broker's own limit: the same messages, acknowledged and thrown away. */
export const brokerOnly = fromBroker(async (settings) => {
  const consumer = new MqttConsumer({ settings, onBatch: async () => {} });
  await consumer.start();
  return { acknowledged: () => consumer.status().counters.acknowledged, stop: () => consumer.stop() };
}, false);
