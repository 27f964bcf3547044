/**
 * A consumer in a process of its own, to be killed. Each batch is one transaction: the inbox decides which messages
 * are new, those have their effect, and every delivery leaves a trace.
 */

import { MqttConsumer } from '../../../../src/apps/iot/mqtt/consumer.ts';
import type { MqttMessage } from '../../../../src/apps/iot/mqtt/message.ts';
import { mqttSettings } from '../../../../src/apps/iot/mqtt/options.ts';
import { Database } from '../../../../src/engine/database/database.ts';
import type { ProcessSettings } from './killable.ts';

const { url, mqtt } = JSON.parse(process.argv[2] ?? '') as ProcessSettings;
const database = await Database.connect({ url, poolSize: 2 });

async function onBatch(messages: readonly MqttMessage[]): Promise<void> {
  await database.query(
    `with given as (select * from unnest($1::text[], $2::text[], $3::integer[], $4::boolean[])
                      with ordinality as g (key, device, number, duplicate, n)),
          fresh as (insert into inbox select distinct key from given on conflict do nothing returning key),
          effect as (insert into effects (key, device, number)
                     select key, device, number from (select distinct on (key) * from given order by key, n) g
                       join fresh using (key) order by n)
     insert into deliveries (key, again, duplicate)
     select g.key, not exists (select 1 from fresh f where f.key = g.key), g.duplicate from given g`,
    [
      messages.map(({ payload }) => payload.toString()),
      messages.map(({ topic }) => topic),
      messages.map(({ payload }) => Number(payload.toString().split(':')[1])),
      messages.map(({ duplicate }) => duplicate),
    ],
  );
}

// Not longer than the test that started us.
process.once('disconnect', () => process.exit());
const consumer = new MqttConsumer({ settings: mqttSettings(mqtt), onBatch });
await consumer.start();
process.send?.('ready');
