import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import { natsWakeup } from '../../src/engine/wakeups/nats.ts';
import { rabbitmqWakeup } from '../../src/engine/wakeups/rabbitmq.ts';
import { amiss, drained, expectFinishedOnce, Fleet, scene } from '../support/chaos.ts';
import { LaneWriter, laneNames, load } from '../support/chaos-writers.ts';
import { until } from '../support/engine.ts';
import { seededRandom } from '../support/seeded-random.ts';
import { privateNats } from '../support/services/nats.ts';
import { privateRabbitmq } from '../support/services/rabbitmq.ts';

const reconnect = { minMs: 100, maxMs: 500 };
const pollIntervalMs = 3000;

const brokers = [
  {
    name: 'RabbitMQ',
    broker: privateRabbitmq,
    wakeup: (url: string) => rabbitmqWakeup({ url, reconnect }),
    settings: (url: string) => ({ rabbitmq: url }),
  },
  {
    name: 'NATS',
    broker: privateNats,
    wakeup: (url: string) => natsWakeup({ servers: url, reconnect }),
    settings: (url: string) => ({ nats: url }),
  },
];

describe.each(brokers)(
  '$name is stopped and started again while jobs flow',
  ({ broker, wakeup, settings }) => {
    test('everything is done by polling meanwhile, and hints flow again afterwards', {
      timeout: 400_000,
    }, async () => {
      const random = seededRandom();
      const service = await broker();
      onTestFinished(() => service[Symbol.asyncDispose]());
      await service.start();
      const ours = wakeup(service.url);
      const bundle = await scene({ wakeups: [ours] });
      // Without NOTIFY: what is heard is heard through the broker.
      await bundle.rows(
        `create or replace function tallyman.hint(p_queues text[]) returns void language sql as 'select'`,
      );
      const fleet = new Fleet({
        url: bundle.url,
        ...settings(service.url),
        options: { pollIntervalMs, concurrency: 10 },
      });
      await fleet.start(2);
      const status = () => Promise.all(fleet.all.map((worker) => worker.ask('wakeups')));
      const isState = async (state: 'up' | 'down') =>
        ours.status().state === state && (await status()).every(({ states }) => states[0] === state);

      let jobs = 0;
      const runsOne = async () => {
        const { id } = await bundle.tallyman.enqueue(bundle.kinds.plain, { i: jobs });
        jobs += 1;
        await until(
          'it ran',
          async () => (await bundle.rows('select 1 from runs where job = $1', [id])).length > 0,
        );
      };
      const hints = async () => (await status()).map((each) => each.hints);
      /** On an idle system the hint of one job reaches every worker. That a hint is followed by a claim is shown elsewhere. */
      const hintsFlow = async (when: string) => {
        const before = await hints();
        await runsOne();
        await until(`every worker has heard of it ${when}`, async () =>
          (await hints()).every((heard, i) => heard > (before[i] ?? 0)),
        );
      };

      await hintsFlow('at first');

      const write = () => load(writers.map((writer) => (ended) => writer.writeUntil(ended, 20)));
      const writers = laneNames(20, 2).map((lanes) => new LaneWriter(bundle, random, lanes));
      let writing = write();
      await sleep(500);
      await service.stop();
      await until('everybody knows that it is away', () => isState('down'));
      await sleep(1000);
      await writing.stop();
      await drained(bundle, fleet);
      const deaf = await hints();
      await runsOne();
      expect(await hints()).toEqual(deaf);

      writing = write();
      await service.start();
      await until('everybody is back', () => isState('up'));
      await sleep(500);
      await writing.stop();
      await drained(bundle, fleet);
      await hintsFlow('after the restart');

      await drained(bundle, fleet);
      expect(await amiss(bundle)).toEqual({});
      jobs += writers.flatMap((writer) => writer.acknowledged).length;
      await expectFinishedOnce(bundle, jobs);
      console.info(`chaos: ${jobs} jobs, with the broker and without`);
    });
  },
);
