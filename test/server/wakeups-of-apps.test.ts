import { connect } from 'amqplib';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { privateRabbitmq } from '../support/services/rabbitmq.ts';
import type { Service } from '../support/services/service.ts';
import { until } from '../support/until.ts';
import { furnishLabels, labelMac, server, type TestServer } from './support.ts';

/*
 * Routes of apps that enqueue tell RabbitMQ, after their commit, with the id of the job.
 */

let broker: Service;
beforeAll(async () => {
  broker = await privateRabbitmq();
  await broker.start();
});
afterAll(() => broker[Symbol.asyncDispose]());

interface Message {
  readonly job_id: string | null;
  readonly queue: string | null;
}

async function scene(exchange: string): Promise<{ test: TestServer; heard: Message[] }> {
  const test = await server({
    config: {
      'wakeups.rabbitmq.enabled': true,
      'wakeups.rabbitmq.url': broker.url,
      'wakeups.rabbitmq.exchange': exchange,
    },
  });
  const connection = await connect(broker.url);
  onTestFinished(() => connection.close());
  const channel = await connection.createChannel();
  const { queue } = await channel.assertQueue('', { exclusive: true });
  await channel.bindQueue(queue, exchange, 'jobs.trigger');
  const heard: Message[] = [];
  await channel.consume(queue, (message) => heard.push(JSON.parse(String(message?.content)) as Message), {
    noAck: true,
  });
  return { test, heard };
}

test('wake-ups: every change of labels over HTTP names its last task', async () => {
  const { test, heard } = await scene('of-labels');
  const ask = await test.as('admin');
  await furnishLabels(ask);
  const lastTask = async (): Promise<string> => {
    const [row] = await test.rows<{ id: string }>(
      `select max(id)::text as id from tallyman.jobs where kind = 'labels.push'`,
    );
    return row?.id ?? '';
  };
  let before = '';
  const told = async (method: string, url: string, body?: object): Promise<void> => {
    const answer = await ask(method, url, body);
    expect({ url, status: answer.status < 300 }).toEqual({ url, status: true });
    const task = await lastTask();
    expect({ url, isNew: task !== before }).toEqual({ url, isNew: true });
    before = task;
    await until(`${method} ${url} is told`, () => heard.some(({ job_id: id }) => id === task));
  };
  await told('POST', '/v1/stores/s1/products', { products: [{ sku: 'P0', price: '2.00' }] });
  await told('POST', `/v1/labels/${labelMac}/resync`);
  await told('POST', '/v1/stores/s1/resync');
  await told('PUT', '/v1/stores/s1', { currency: 'EUR' });
  await told('PUT', '/v1/label-templates/tag', {
    svg: '<svg xmlns="http://www.w3.org/2000/svg" width="200" height="200"><text x="9" y="80">{{price}}</text></svg>',
  });
  await told('DELETE', `/v1/labels/${labelMac}/pages/1`);
  await told('POST', '/v1/label-assignments', {
    assignments: [{ mac: labelMac, sku: 'P0', template: 'tag' }],
  });
  expect(heard.filter(({ job_id: id }) => id === null)).toEqual([]);
  expect(new Set(heard.map(({ queue }) => queue))).toEqual(new Set(['labels']));
});

test('wake-ups: an endpoint that is enabled names a delivery that it lets run', async () => {
  const { test, heard } = await scene('of-webhooks');
  const ask = await test.as('admin');
  const { body: webhook } = await ask('POST', '/v1/webhooks', { url: 'http://127.0.0.1:9/hook' });
  await ask('POST', `/v1/webhooks/${webhook.id}/ping`);
  const [job] = await test.rows<{ id: string }>(
    `update tallyman.jobs set scheduled_at = now() + interval '1 hour' where kind = 'webhook.deliver' returning id::text`,
  );
  await until('the ping is told', () => heard.length === 1);
  heard.length = 0;
  await ask('PATCH', `/v1/webhooks/${webhook.id}`, { enabled: true });
  await until('it is told', () => heard.length >= 1);
  expect(heard).toEqual([{ job_id: job?.id, queue: 'webhooks' }]);
});
