import { type ChannelModel, connect } from 'amqplib';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { rabbitmqWakeup } from '../../../src/engine/wakeups/rabbitmq.ts';
import type { Hint, Wakeup } from '../../../src/engine/wakeups/wakeup.ts';
import { eventually } from '../../support/eventually.ts';
import { privateRabbitmq } from '../../support/services/rabbitmq.ts';
import type { Service } from '../../support/services/service.ts';
import { wakeupConformance } from './conformance.ts';

// One node for the file: the suites take turns with it.
let shared: Promise<Service> | undefined;
const node = (): Promise<Service> => {
  shared ??= privateRabbitmq();
  return shared;
};
afterAll(async () => (await shared)?.[Symbol.asyncDispose]());

describe('Wake-ups through RabbitMQ: the exchange', () => {
  let admin: ChannelModel;
  let url: string;
  const open: Wakeup[] = [];

  beforeAll(async () => {
    const broker = await node();
    await broker.start();
    url = broker.url;
    admin = await connect(url);
    admin.on('error', () => {});
  });
  afterEach(async () => {
    await Promise.all(open.splice(0).map((wakeup) => wakeup.stop()));
  });
  afterAll(() => admin.close());

  const listen = async (options: Partial<Parameters<typeof rabbitmqWakeup>[0]> = {}) => {
    const hints: Hint[] = [];
    const wakeup = rabbitmqWakeup({ url, reconnect: { minMs: 20, maxMs: 100 }, ...options });
    open.push(wakeup);
    await wakeup.start((hint) => hints.push(hint));
    return { wakeup, hints };
  };

  it('declares bpc as a durable topic exchange, and sends {"job_id", "queue"} with key jobs.trigger', async () => {
    const { wakeup } = await listen();
    const channel = await admin.createChannel();
    await channel.assertExchange('bpc', 'topic', { durable: true });
    const { queue } = await channel.assertQueue('', { exclusive: true });
    await channel.bindQueue(queue, 'bpc', 'jobs.#');
    const messages: unknown[] = [];
    await channel.consume(queue, (message) => {
      messages.push([message?.fields.routingKey, JSON.parse(String(message?.content))]);
    });
    await wakeup.publish({ queue: 'labels', jobId: '42' });
    await eventually(() => expect(messages).toEqual([['jobs.trigger', { job_id: '42', queue: 'labels' }]]));
    await channel.close();
  });

  it.each(['direct', 'fanout'])('uses an exchange that others declared as %s', async (type) => {
    const channel = await admin.createChannel();
    await channel.assertExchange(`plant-${type}`, type, { durable: false });
    const { wakeup, hints } = await listen({ exchange: `plant-${type}`, routingKey: 'go' });
    await wakeup.publish({ queue: 'labels', jobId: '1' });
    await eventually(() => expect(hints).toEqual([{ queue: 'labels', jobId: '1' }]));
    await channel.close();
  });

  it('hears only its own routing key', async () => {
    const { hints } = await listen({ routingKey: 'jobs.mine' });
    const channel = await admin.createChannel();
    channel.publish('bpc', 'jobs.trigger', Buffer.from('{"job_id":"other"}'));
    channel.publish('bpc', 'jobs.mine', Buffer.from('{"job_id":"mine"}'));
    await eventually(() => expect(hints).toEqual([{ queue: null, jobId: 'mine' }]));
    await channel.close();
  });

  it('an exchange that is deleted under it is declared again', async () => {
    const { wakeup, hints } = await listen({ exchange: 'short-lived' });
    const channel = await admin.createChannel();
    await channel.deleteExchange('short-lived');
    await eventually(async () => {
      await wakeup.publish({ queue: 'labels' });
      expect(hints).toContainEqual({ queue: 'labels' });
    });
    await channel.close();
  });

  it('a wrong password is a broker that is away', async () => {
    const { wakeup } = await listen({ url: url.replace('guest:guest', 'guest:wrong') });
    expect(wakeup.status()).toMatchObject({
      state: 'down',
      reason: expect.stringContaining('ACCESS_REFUSED'),
    });
  });

  it('its queue goes when it stops', async () => {
    const { wakeup } = await listen({ exchange: 'counted' });
    await wakeup.stop();
    // Refused (406) for as long as a queue is bound. The broker deletes it a moment after it has taken the goodbye.
    await eventually(async () => {
      const channel = await admin.createChannel();
      channel.on('error', () => {});
      await channel.deleteExchange('counted', { ifUnused: true });
      await channel.close();
    });
  });

  it.each(['', 'localhost', 'http://localhost', 'amqp//tally:s3cret@host'])('refuses the url "%s"', (bad) => {
    expect(() => rabbitmqWakeup({ url: bad })).toThrow(expect.objectContaining({ code: 'INVALID_OPTION' }));
    expect(() => rabbitmqWakeup({ url: bad })).not.toThrow(/s3cret/);
  });

  it('refuses names that AMQP cannot carry', () => {
    expect(() => rabbitmqWakeup({ url, exchange: '' })).toThrow(/exchange/);
    expect(() => rabbitmqWakeup({ url, routingKey: 'ü'.repeat(128) })).toThrow(/routingKey/);
  });
});

wakeupConformance('RabbitMQ', {
  broker: node,
  create: (settings) => rabbitmqWakeup(settings),
  source: { file: 'src/engine/wakeups/rabbitmq.ts', factory: 'rabbitmqWakeup', urlOption: 'url' },
  sendRaw: async (url, bodies) => {
    const connection = await connect(url);
    const channel = await connection.createConfirmChannel();
    for (const body of bodies) channel.publish('bpc', 'jobs.trigger', Buffer.from(body));
    await channel.waitForConfirms();
    await connection.close();
  },
});
