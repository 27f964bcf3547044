import { randomBytes } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { drained, until } from '../../support/engine.ts';
import { ok, receiver, status } from './support/receiver.ts';
import { hurry, type WebhookScene, webhookScene } from './support/scene.ts';

const attempts = async ({ webhooks }: WebhookScene) => [...(await webhooks.attempts()).items].reverse();

async function deadLetters(scene: WebhookScene, n: number): Promise<void> {
  await until('the delivery is buried', async () => {
    await hurry(scene);
    return (await scene.rows('select 1 from tallyman.dead_letters')).length === n;
  });
}

describe('one exchange', () => {
  test('WH-2: a POST with the JSON body and the headers of the contract', async () => {
    const scene = await webhookScene();
    const { url, requests } = await receiver();
    const { id } = await scene.endpoint({ url });
    await scene.events.emit({
      type: 'pallet.moved',
      aggregateType: 'pallet',
      aggregateId: 'P-1',
      payload: { bay: 'B7', ü: 'ß' },
      id: 'event-1',
      occurredAt: new Date('2026-01-02T03:04:05.678Z'),
      tenantId: 'default',
    });
    await scene.fanOut();
    await scene.deliver();
    await drained(scene);
    expect(requests).toHaveLength(1);
    const [request] = requests;
    expect(request?.method).toBe('POST');
    expect(request?.headers['content-type']).toBe('application/json');
    expect(JSON.parse(String(request?.body))).toEqual({
      event_id: 'event-1',
      event_type: 'pallet.moved',
      aggregate_type: 'pallet',
      aggregate_id: 'P-1',
      occurred_at: '2026-01-02T03:04:05.678Z',
      tenant_id: 'default',
      payload: { bay: 'B7', ü: 'ß' },
    });
    const [attempt] = await attempts(scene);
    expect(request?.headers).toMatchObject({
      'x-bpc-event-type': 'pallet.moved',
      'x-bpc-delivery-id': attempt?.deliveryId,
      'webhook-id': 'event-1',
    });
    expect(attempt).toMatchObject({
      endpointId: id,
      eventId: 'event-1',
      attempt: 1,
      status: 'SUCCEEDED',
      httpStatus: 200,
      responseBody: 'thanks',
      error: null,
      responseHeaders: { connection: 'keep-alive' },
    });
    expect((await scene.webhooks.delivery(attempt?.deliveryId ?? ''))?.succeededAt).toBeInstanceOf(Date);
  });

  test('WH-2: numbers in a payload arrive as they were written', async () => {
    const scene = await webhookScene();
    const { url, requests } = await receiver();
    await scene.endpoint({ url });
    await scene.rows(
      `select tallyman_events.emit('tag.read', 'tag', 'T-1', '{"epc": 12345678901234567890.10}')`,
    );
    await scene.fanOut();
    await scene.deliver();
    await drained(scene);
    expect(String(requests[0]?.body)).toContain('12345678901234567890.10');
  });

  test('WH-5: an answer that is no text is kept as far as text can hold it, and no more than 64 KiB', async () => {
    const scene = await webhookScene();
    const junk = Buffer.concat([Buffer.from([0, 0xff, 0xfe, 0x41]), randomBytes(80 * 1024)]);
    const { url } = await receiver((_request, response) => {
      response.setHeader('x-odd', Buffer.from('caf\u00e9', 'latin1').toString('latin1'));
      response.end(junk);
    });
    await scene.endpoint({ url });
    await scene.emit('a');
    await scene.deliver();
    await drained(scene);
    const [attempt] = await attempts(scene);
    expect(attempt?.status).toBe('SUCCEEDED');
    expect(attempt?.responseBody?.slice(0, 4)).toBe('\ufffd\ufffd\ufffdA');
    expect(attempt?.responseBody?.length).toBeLessThanOrEqual(64 * 1024);
  });
});

describe('WH-4: what goes wrong', () => {
  test('WH-4: a receiver that hangs is given up on after the time limit, and tried again', async () => {
    const scene = await webhookScene();
    let hangs = true;
    const { url, requests } = await receiver((request, response, nth) => {
      if (!hangs) ok(request, response, nth);
    });
    const { id } = await scene.endpoint({ url, timeoutMs: 500, retryDelays: [3600] });
    await scene.emit('a');
    await scene.deliver();
    await until('it is given up on', async () => (await attempts(scene)).length === 1);
    // The second attempt has all the time that a slow machine may need.
    hangs = false;
    await scene.webhooks.update(id, { timeoutMs: 60_000 });
    await until('it is delivered', async () => {
      await hurry(scene);
      return (await scene.rows('select 1 from tallyman.jobs')).length === 0;
    });
    expect(requests.length).toBeLessThanOrEqual(2);
    expect(await attempts(scene)).toMatchObject([
      { attempt: 1, status: 'FAILED', httpStatus: null, errorCode: 'TIMEOUT' },
      { attempt: 2, status: 'SUCCEEDED' },
    ]);
  });

  test('WH-4: the time limit holds for a body that trickles on', async () => {
    const scene = await webhookScene();
    const { url } = await receiver((_request, response) => {
      response.writeHead(200).write('still');
      const timer = setInterval(() => response.write('.'), 20);
      response.on('close', () => clearInterval(timer));
    });
    await scene.endpoint({ url, timeoutMs: 500, maxAttempts: 50 });
    await scene.emit('a');
    await scene.deliver();
    // On a slow machine the first attempts may end before the body has begun.
    await until('one has ended in the middle of the body', async () => {
      await hurry(scene);
      return (await attempts(scene)).some(({ httpStatus }) => httpStatus === 200);
    });
    for (const attempt of await attempts(scene))
      expect(attempt).toMatchObject({ status: 'FAILED', errorCode: 'TIMEOUT' });
  });

  test('WH-4: a slow receiver that answers in time is a success', async () => {
    const scene = await webhookScene();
    const { url } = await receiver((request, response, nth) => {
      setTimeout(() => ok(request, response, nth), 300);
    });
    await scene.endpoint({ url, timeoutMs: 20_000 });
    await scene.emit('a');
    await scene.deliver();
    await drained(scene);
    expect(await attempts(scene)).toMatchObject([{ attempt: 1, status: 'SUCCEEDED' }]);
  });

  test('WH-4: an endless body counts by its status once 64 KiB are there', async () => {
    const scene = await webhookScene();
    let closed = false;
    const { url } = await receiver((_request, response) => {
      response.writeHead(200);
      const more = (): void => {
        while (!closed && response.write('x'.repeat(16 * 1024)));
      };
      response.on('drain', more).on('close', () => {
        closed = true;
      });
      more();
    });
    await scene.endpoint({ url, timeoutMs: 60_000 });
    await scene.emit('a');
    await scene.deliver();
    await drained(scene);
    const [attempt] = await attempts(scene);
    expect(attempt).toMatchObject({ status: 'SUCCEEDED', httpStatus: 200 });
    expect(attempt?.responseBody).toBe('x'.repeat(64 * 1024));
    await until('the connection is closed', () => closed);
  });

  test('WH-4, WH-2: 500 is tried five times under one delivery id, then it is a dead letter', async () => {
    const scene = await webhookScene();
    const { url, requests } = await receiver(status(500));
    await scene.webhooks.add({ url });
    await scene.emit('a');
    await scene.deliver();
    await deadLetters(scene, 1);
    expect(requests).toHaveLength(5);
    expect(new Set(requests.map(({ headers }) => headers['x-bpc-delivery-id'])).size).toBe(1);
    expect(new Set(requests.map(({ headers }) => headers['webhook-id'])).size).toBe(1);
    expect(
      (await attempts(scene)).map(({ attempt, status, httpStatus }) => [attempt, status, httpStatus]),
    ).toEqual([1, 2, 3, 4, 5].map((n) => [n, 'FAILED', 500]));
    expect(await scene.rows('select kind, priority, attempts from tallyman.dead_letters')).toEqual([
      { kind: 'webhook.deliver', priority: 3, attempts: 5 },
    ]);
  });

  test('WH-4: nobody listens: a network error is tried again', async () => {
    const scene = await webhookScene();
    await scene.endpoint({ url: 'http://127.0.0.1:9/', maxAttempts: 2 });
    await scene.emit('a');
    await scene.deliver();
    await deadLetters(scene, 1);
    expect(await attempts(scene)).toMatchObject([
      { httpStatus: null, errorCode: 'ECONNREFUSED' },
      { httpStatus: null, errorCode: 'ECONNREFUSED' },
    ]);
  });

  test('WH-4: 410 disables the endpoint; its other deliveries end, and it gets no new ones', async () => {
    const scene = await webhookScene();
    const { url, requests } = await receiver(status(410));
    const { id } = await scene.endpoint({ url, ordered: true });
    await scene.emit('a');
    await scene.emit('b');
    await scene.deliver();
    await drained(scene);
    expect(requests).toHaveLength(1);
    expect(await scene.webhooks.get(id)).toMatchObject({ disabledReason: 'the receiver answered 410 Gone' });
    expect(
      await scene.rows(`select status, last_error ->> 'code' as code from tallyman.history order by id`),
    ).toEqual([
      { status: 'FAILED', code: 'HTTP_410' },
      { status: 'FAILED', code: 'ENDPOINT_DISABLED' },
    ]);
    await scene.emit('c');
    expect(await scene.rows('select 1 from tallyman.jobs')).toEqual([]);
  });

  test.each([
    { what: '120', header: () => '120', atLeast: 119, atMost: 121 },
    {
      what: 'a date',
      header: () => new Date(Date.now() + 3_600_000).toUTCString(),
      atLeast: 3_500,
      atMost: 3_601,
    },
    { what: '99999999', header: () => '99999999', atLeast: 86_390, atMost: 86_400 },
    { what: '0', header: () => '0', atLeast: 0, atMost: 1.1 },
  ])('WH-4: 429 with Retry-After $what is honoured, up to a day', async ({ header, atLeast, atMost }) => {
    const scene = await webhookScene();
    const { url } = await receiver((...args) => status(429, { 'retry-after': header() })(...args));
    await scene.endpoint({ url, retryDelays: [7 * 86_400] });
    const worker = await scene.deliver();
    const waits = new Promise<number>((told) =>
      worker.events.once('retried', ({ delayMs }) => told(delayMs / 1000)),
    );
    await scene.emit('a');
    const seconds = await waits;
    expect(seconds).toBeGreaterThanOrEqual(atLeast);
    expect(seconds).toBeLessThanOrEqual(atMost);
  });

  test('WH-4: without Retry-After the schedule of the endpoint decides', async () => {
    const scene = await webhookScene();
    const { url } = await receiver(status(503));
    await scene.endpoint({ url, retryDelays: [5, 300], maxAttempts: 4 });
    const delays: number[] = [];
    const worker = await scene.deliver();
    worker.events.on('retried', ({ delayMs }) => delays.push(delayMs / 1000));
    await scene.emit('a');
    await deadLetters(scene, 1);
    expect(delays.map((delay, i) => Math.floor(delay / ([5, 300, 300][i] ?? 0)))).toEqual([1, 1, 1]);
  });

  test('WH-4: a redirect is a failure and is not followed', async () => {
    const scene = await webhookScene();
    const elsewhere = await receiver();
    const { url } = await receiver(status(307, { location: elsewhere.url }));
    await scene.endpoint({ url, maxAttempts: 1 });
    await scene.emit('a');
    await scene.deliver();
    await deadLetters(scene, 1);
    expect(elsewhere.requests).toEqual([]);
    expect(await attempts(scene)).toMatchObject([
      { status: 'FAILED', httpStatus: 307, errorCode: 'HTTP_307' },
    ]);
  });

  test('WH-4: a removed endpoint ends its deliveries', async () => {
    const scene = await webhookScene();
    const { url, requests } = await receiver();
    const { id } = await scene.endpoint({ url });
    await scene.emit('a');
    await scene.webhooks.remove(id);
    await scene.deliver();
    await drained(scene);
    expect(requests).toEqual([]);
    expect(await scene.rows(`select last_error ->> 'code' as code from tallyman.history`)).toEqual([
      { code: 'ENDPOINT_GONE' },
    ]);
  });
});
