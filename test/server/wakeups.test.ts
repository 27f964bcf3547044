import { connect } from 'amqplib';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { webhookFollower } from '../../src/apps/webhooks/follower.ts';
import { defineKind } from '../../src/engine/jobs/kind.ts';
import { silentLogger } from '../../src/engine/logger.ts';
import { Tallyman } from '../../src/engine/tallyman.ts';
import { rabbitmqWakeup } from '../../src/engine/wakeups/rabbitmq.ts';
import { privateRabbitmq } from '../support/services/rabbitmq.ts';
import type { Service } from '../support/services/service.ts';
import { until } from '../support/until.ts';
import { bury, registerKind, server, type TestServer } from './support.ts';

/*
 * Everything that enqueues over HTTP tells RabbitMQ, after its commit, with the id of the job.
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

/** A server whose wake-ups go through an exchange of its own, and what others hear there. */
async function scene(): Promise<{ test: TestServer; exchange: string; heard: Message[] }> {
  const exchange = `plant-${expect.getState().currentTestName?.replace(/\W+/g, '-').slice(0, 60)}`;
  const test = await server({
    config: {
      'wakeups.rabbitmq.enabled': true,
      'wakeups.rabbitmq.url': broker.url,
      'wakeups.rabbitmq.exchange': exchange,
    },
  });
  // On a slow machine the first attempt to connect may not have been the last.
  await until('the server has connected', async () => {
    const { body } = await test.ask('GET', '/v1/health/ready');
    return body.checks.rabbitmq?.status === 'up';
  });
  await registerKind(test, 'noop');
  await test.rows(`select tallyman.register_kind('other', queue => 'elsewhere', is_public => true)`);
  const connection = await connect(broker.url);
  const channel = await connection.createChannel();
  const { queue } = await channel.assertQueue('', { exclusive: true });
  await channel.bindQueue(queue, exchange, 'jobs.trigger');
  const heard: Message[] = [];
  const found: Promise<boolean>[] = [];
  await channel.consume(
    queue,
    (message) => {
      const hint = JSON.parse(String(message?.content)) as Message;
      heard.push(hint);
      // Sent after the commit: a receiver finds the job, live or in history.
      if (hint.job_id !== null)
        found.push(test.tallyman.jobs.get(hint.job_id).then((job) => job !== undefined));
    },
    { noAck: true },
  );
  onTestFinished(async () => {
    await connection.close();
    expect(await Promise.all(found)).not.toContain(false);
  });
  return { test, exchange, heard };
}

/** What is heard of one request: exactly these. The request after it shows that no more came. */
async function told(heard: Message[], request: Promise<{ status: number; body: unknown }>, messages: number) {
  heard.length = 0;
  const answer = await request;
  await until('it was told', () => heard.length >= messages);
  return { ...answer, heard: heard.slice() };
}

test('wake-ups: jobs, one and many', async () => {
  const { test, heard } = await scene();
  const one = await told(heard, test.ask('POST', '/v1/jobs', { kind: 'noop' }), 1);
  expect(one.heard).toEqual([{ job_id: (one.body as { id: string }).id, queue: 'default' }]);
  const elsewhere = await told(heard, test.ask('POST', '/v1/jobs', { kind: 'other' }), 1);
  expect(elsewhere.heard).toEqual([{ job_id: (elsewhere.body as { id: string }).id, queue: 'elsewhere' }]);
  const named = await told(
    heard,
    test.ask('POST', '/v1/jobs', { kind: 'noop', queue: 'mine', lane: 'l' }),
    1,
  );
  expect(named.heard).toEqual([{ job_id: (named.body as { id: string }).id, queue: 'mine' }]);

  const jobs = [{ kind: 'noop' }, { kind: 'other' }, { kind: 'noop' }];
  const batch = await told(heard, test.ask('POST', '/v1/jobs/batch', { jobs }), 2);
  const { ids } = batch.body as { ids: string[] };
  expect(batch.heard).toEqual(
    expect.arrayContaining([
      { job_id: ids[1], queue: 'elsewhere' },
      { job_id: ids[2], queue: 'default' },
    ]),
  );
  expect(batch.heard).toHaveLength(2);
});

test('wake-ups: nothing is told of what is refused, rolled back or repeated', async () => {
  const { test, heard } = await scene();
  const refused = await test.ask('POST', '/v1/jobs/batch', { jobs: [{ kind: 'noop' }, { kind: 'nobody' }] });
  expect(refused.status).toBeGreaterThanOrEqual(400);
  const key = { 'idempotency-key': 'k' };
  const first = await told(heard, test.ask('POST', '/v1/jobs', { kind: 'noop' }, key), 1);
  const again = await test.ask('POST', '/v1/jobs', { kind: 'noop' }, key);
  expect(again.headers.get('idempotency-replayed')).toBe('true');
  const last = await test.ask('POST', '/v1/jobs', { kind: 'other' });
  await until('the last was told', () => heard.some(({ job_id: id }) => id === last.body.id));
  expect(heard).toEqual([
    { job_id: (first.body as { id: string }).id, queue: 'default' },
    { job_id: last.body.id, queue: 'elsewhere' },
  ]);
});

test('wake-ups: retry and redrive, one and by filter', async () => {
  const { test, heard } = await scene();
  const make = async (more: object = {}): Promise<string> => {
    const made = await told(heard, test.ask('POST', '/v1/jobs', { kind: 'other', ...more }), 1);
    return (made.body as { id: string }).id;
  };

  const later = await make({ delay_ms: 3_600_000 });
  const waiting = await told(heard, test.ask('POST', `/v1/jobs/${later}/retry`), 1);
  expect(waiting.heard).toEqual([{ job_id: later, queue: 'elsewhere' }]);

  const cancelled = await make();
  await test.ask('POST', `/v1/jobs/${cancelled}/cancel`);
  const retried = await told(heard, test.ask('POST', `/v1/jobs/${cancelled}/retry`), 1);
  expect(retried.heard).toEqual([{ job_id: cancelled, queue: 'elsewhere' }]);

  const dead = [await make(), await make({ queue: 'mine' }), await make()] as const;
  for (const id of dead) await bury(test, id);
  const redriven = await told(heard, test.ask('POST', `/v1/dead-letters/${dead[0]}/redrive`), 1);
  expect(redriven.heard).toEqual([{ job_id: dead[0], queue: 'elsewhere' }]);
  const rest = await told(heard, test.ask('POST', '/v1/dead-letters/redrive', { kind: 'other' }), 2);
  expect(rest.body).toMatchObject({ redriven: 2 });
  expect(rest.heard).toHaveLength(2);
  expect(rest.heard).toEqual(
    expect.arrayContaining([
      { job_id: dead[1], queue: 'mine' },
      { job_id: dead[2], queue: 'elsewhere' },
    ]),
  );
});

test('wake-ups: deliveries of events, and those that a person asks for', async () => {
  const { test, heard } = await scene();
  const webhook = await test.ask('POST', '/v1/webhooks', { url: 'http://127.0.0.1:9/hook' });
  const jobOf = async (): Promise<string | undefined> =>
    (
      await test.rows<{ id: string }>(
        `select max(id) as id from tallyman.jobs where kind = 'webhook.deliver'`,
      )
    )[0]?.id;
  const ping = await told(heard, test.ask('POST', `/v1/webhooks/${webhook.body.id}/ping`), 1);
  expect(ping.heard).toEqual([{ job_id: await jobOf(), queue: 'webhooks' }]);

  const follower = webhookFollower(test.tallyman.database, { pollMs: 20 });
  follower.start();
  onTestFinished(() => follower.stop());
  const event = { event_type: 'pallet.moved', aggregate_type: 'pallet', aggregate_id: 'P-1' };
  const emitted = await told(heard, test.ask('POST', '/v1/events', event), 1);
  expect(emitted.status).toBe(202);
  expect(emitted.heard).toEqual([{ job_id: await jobOf(), queue: 'webhooks' }]);
});

test('wake-ups: a lane that is unblocked and a queue that is resumed', async () => {
  const { test, heard } = await scene();
  await test.rows(`select tallyman.register_kind('strict', lane_policy => 'block', is_public => true)`);
  const job = await told(heard, test.ask('POST', '/v1/jobs', { kind: 'strict', lane: 'l' }), 1);
  await bury(test, (job.body as { id: string }).id);
  const [lane] = await test.rows<{ id: string }>('update tallyman.lanes set blocked_at = now() returning id');
  const unblocked = await told(heard, test.ask('POST', `/v1/lanes/${lane?.id}/unblock`), 1);
  expect(unblocked.heard).toEqual([{ job_id: null, queue: 'default' }]);
  await test.ask('POST', '/v1/queues/default/pause');
  const resumed = await told(heard, test.ask('POST', '/v1/queues/default/resume'), 1);
  expect(resumed.heard).toEqual([{ job_id: null, queue: 'default' }]);
});

test('wake-ups: a worker of another process runs what came over HTTP, without a NOTIFY and without a poll', async () => {
  const { test, exchange } = await scene();
  await test.rows(
    `create or replace function tallyman.hint(p_queues text[]) returns void language sql as 'select'`,
  );
  const ran: string[] = [];
  const noop = defineKind({ name: 'noop', public: true, handler: (_, { id }) => void ran.push(id) });
  const elsewhere = await Tallyman.open({
    databaseUrl: test.databaseUrl,
    logger: silentLogger,
    wakeups: [rabbitmqWakeup({ url: broker.url, exchange })],
  });
  onTestFinished(() => elsewhere.close());
  await elsewhere.worker({ kinds: [noop], pollIntervalMs: 600_000 }).start();
  const ids: string[] = [];
  for (let i = 0; i < 3; i += 1) {
    const { body } = await test.ask('POST', '/v1/jobs', { kind: 'noop' });
    ids.push(body.id);
    await until('it ran', () => ran.includes(body.id));
  }
  expect(ran).toEqual(ids);
});
