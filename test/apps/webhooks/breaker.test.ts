import type { ServerResponse } from 'node:http';
import { describe, expect, test } from 'vitest';
import { Breaker } from '../../../src/apps/webhooks/delivery/breaker.ts';
import { drained, until } from '../../support/engine.ts';
import { ok, type Reply, receiver, status } from './support/receiver.ts';
import { hurry, type WebhookScene, webhookScene } from './support/scene.ts';

const emitMany = async (scene: WebhookScene, n: number): Promise<void> => {
  await scene.rows(
    `select tallyman_events.emit('a', 'thing', n::text, json_build_object('n', n)) from generate_series(1, $1::int) n`,
    [n],
  );
  await scene.fanOut();
};

/** Attempts that waiting deliveries of an endpoint have used up. */
const used = async (scene: WebhookScene, endpoint: string): Promise<number> => {
  const [row] = await scene.rows<{ used: number | null }>(
    `select max(attempts)::int as used from tallyman.jobs where payload ->> 'endpoint' = $1`,
    [endpoint],
  );
  return row?.used ?? 0;
};

test('WH-8: receivers that hang, dawdle or fail do not hold up one that is well', {
  timeout: 600_000,
}, async () => {
  const scene = await webhookScene();
  const held: ServerResponse[] = [];
  const stuck: Reply = (_request, response) => void held.push(response);
  const hanging = await receiver(stuck);
  const slow = await receiver(
    (request, response, nth) => void setTimeout(() => ok(request, response, nth), 10_000),
  );
  const failing = await receiver(status(500));
  const well = await receiver();
  const { id } = await scene.endpoint({ url: hanging.url, timeoutMs: 300_000 });
  await scene.endpoint({ url: slow.url, timeoutMs: 300_000 });
  // As many attempts as a slow machine gives it time for.
  await scene.endpoint({ url: failing.url, maxAttempts: 50 });
  await scene.endpoint({ url: well.url });
  await emitMany(scene, 300);
  await scene.deliver({ perEndpoint: 3, worker: { concurrency: 10 } });
  await until('the one that is well has got everything', () => well.requests.length === 300, 280_000);
  // All that the others were sent is still unanswered or but a part, and what waits for them has lost nothing by it.
  expect(hanging.requests.length).toBeLessThanOrEqual(3);
  expect(held.every((response) => !response.writableEnded)).toBe(true);
  expect(slow.requests.length).toBeLessThan(300);
  expect(await used(scene, id)).toBeLessThanOrEqual(0);
  expect(await scene.rows('select 1 from tallyman.dead_letters')).toEqual([]);
});

describe('the breaker', () => {
  const breaker = { failures: 3, openMs: 600_000, maxOpenMs: 6_000_000 };

  /** An endpoint whose breaker has opened with deliveries waiting. */
  async function opened() {
    const scene = await webhookScene();
    let reply: Reply = status(500);
    const to = await receiver((request, response, nth) => reply(request, response, nth));
    // A probe has its place for as long as its exchange may take.
    const { id } = await scene.endpoint({ url: to.url, timeoutMs: 300_000 });
    await emitMany(scene, 20);
    await scene.deliver({ breaker, perEndpoint: 2 });
    const settled = async (): Promise<boolean> => {
      await hurry(scene);
      const [row] = await scene.rows<{ n: number }>(
        `select count(*)::int as n from tallyman.jobs where last_error ->> 'message' like 'put off: % is failing%'`,
      );
      return row?.n === 20;
    };
    await until('the breaker is open and everything waits', settled);
    return {
      scene,
      to,
      id,
      replyWith: (next: Reply) => {
        reply = next;
      },
      /** Its time passes. */
      ripen: async () => {
        await scene.rows('update tallyman_webhooks.endpoints set open_until = clock_timestamp()');
        await hurry(scene);
      },
    };
  }

  test('WH-8: after failures in a row nothing more is sent, and waiting costs no attempt', async () => {
    const { scene, to, id } = await opened();
    // Three, and what the worker's ten slots had looked the endpoint up for before the third was counted.
    expect(to.requests.length).toBeGreaterThanOrEqual(3);
    expect(to.requests.length).toBeLessThanOrEqual(10);
    const before = to.requests.length;
    for (let i = 0; i < 5; i += 1) {
      await hurry(scene);
      await until('they were put off again', async () => {
        const [row] = await scene.rows<{ n: number }>(
          `select count(*)::int as n from tallyman.jobs where scheduled_at > now() + interval '5 minutes'`,
        );
        return row?.n === 20;
      });
    }
    expect(to.requests).toHaveLength(before);
    expect(await used(scene, id)).toBeLessThanOrEqual(4);
    const [sum] = await scene.rows<{ n: number }>('select sum(attempts)::int as n from tallyman.jobs');
    expect(sum?.n).toBe(before);
    expect(await scene.webhooks.get(id)).toMatchObject({ failures: before, openUntil: expect.any(Date) });
  });

  test('WH-8: what waited for its turn while the breaker opened is not sent', async () => {
    const scene = await webhookScene();
    const failing = status(500);
    const to = await receiver(
      (request, response, nth) => void setTimeout(() => failing(request, response, nth), 50),
    );
    await scene.endpoint({ url: to.url });
    await emitMany(scene, 2);
    await scene.deliver({ breaker: { ...breaker, failures: 1 }, perEndpoint: 1 });
    await until('one has failed, the other waits', async () => {
      const failed = await scene.rows('select 1 from tallyman.jobs where last_error is not null');
      return failed.length === 2;
    });
    expect(to.requests).toHaveLength(1);
  });

  test('WH-8: when its time is past one delivery tries, alone; its success lets the others through', async () => {
    const { scene, to, id, replyWith, ripen } = await opened();
    const before = to.requests.length;
    const held: (() => void)[] = [];
    replyWith((request, response, nth) => void held.push(() => ok(request, response, nth)));
    await ripen();
    await until('one tries', () => held.length === 1);
    for (let i = 0; i < 5; i += 1) {
      await hurry(scene);
      await until('the others were put off', async () => {
        const [row] = await scene.rows<{ n: number }>(
          'select count(*)::int as n from tallyman.jobs where pos is null and scheduled_at > now()',
        );
        return row?.n === 19;
      });
    }
    expect(to.requests).toHaveLength(before + 1);
    replyWith(ok);
    held[0]?.();
    await until('all are through', async () => {
      await hurry(scene);
      return (await scene.rows('select 1 from tallyman.jobs limit 1')).length === 0;
    });
    expect(await scene.rows('select 1 from tallyman.dead_letters')).toEqual([]);
    expect(await scene.webhooks.get(id)).toMatchObject({ failures: 0, openUntil: null });
    const { items } = await scene.webhooks.attempts({ status: 'SUCCEEDED' });
    expect(new Set(items.map(({ eventId }) => eventId)).size).toBe(20);
  });

  test('WH-8: a try in vain opens it again, for twice as long', async () => {
    const { scene, to, ripen } = await opened();
    const before = to.requests.length;
    await ripen();
    await until('one has tried', () => to.requests.length === before + 1);
    await until('it is open for longer', async () => {
      const [row] = await scene.rows<{ n: number }>(
        `select extract(epoch from open_until - now())::int as n from tallyman_webhooks.endpoints
          where opened = 2 and probing_until is null`,
      );
      return row !== undefined && row.n > 1100 && row.n <= 1200;
    });
    expect(to.requests).toHaveLength(before + 1);
  });

  test('WH-8: of a whole fleet one may try; if it dies at that, another may once its time is past', async () => {
    const scene = await webhookScene();
    const { id } = await scene.endpoint({ url: 'http://127.0.0.1:9/' });
    const { database } = scene.tallyman;
    const fleet = () => Promise.all(Array.from({ length: 8 }, () => new Breaker().takeProbe(database, id)));
    const takers = async () => (await fleet()).filter(Boolean).length;
    expect(await takers()).toBe(0);
    await scene.rows(`update tallyman_webhooks.endpoints set open_until = now() + interval '1 hour'`);
    expect(await takers()).toBe(0);
    await scene.rows('update tallyman_webhooks.endpoints set open_until = now()');
    expect(await takers()).toBe(1);
    expect(await takers()).toBe(0);
    await scene.rows('update tallyman_webhooks.endpoints set probing_until = now()');
    expect(await takers()).toBe(1);
  });

  test('WH-8: enabling an endpoint closes it', async () => {
    const { scene, id, replyWith } = await opened();
    replyWith(ok);
    await scene.webhooks.enable(id);
    await hurry(scene);
    await until('all are through', async () => {
      await hurry(scene);
      return (await scene.rows('select 1 from tallyman.jobs limit 1')).length === 0;
    });
  });

  test('WH-8, WH-4: who has waited too long is a dead letter, and can be redriven', async () => {
    const scene = await webhookScene();
    const to = await receiver();
    const { id } = await scene.endpoint({ url: to.url });
    await scene.rows(
      `update tallyman_webhooks.endpoints set open_until = now() + interval '1 hour', failures = 3`,
    );
    await scene.emit('a');
    await scene.rows(`update tallyman.jobs set created_at = now() - interval '4 days'`);
    await scene.deliver();
    await until(
      'it is buried',
      async () => (await scene.rows('select 1 from tallyman.dead_letters')).length === 1,
    );
    const [letter] = await scene.rows<{ id: string; code: string }>(
      `select id, last_error ->> 'code' as code from tallyman.dead_letters`,
    );
    expect(letter?.code).toBe('GIVEN_UP');
    expect(to.requests).toEqual([]);
    await scene.webhooks.enable(id);
    await scene.tallyman.deadLetters.redrive(letter?.id ?? '');
    await drained(scene);
    expect(to.requests).toHaveLength(1);
  });
});
