import { randomUUID } from 'node:crypto';
import { expect, test } from 'vitest';
import { until } from '../../support/engine.ts';
import { receiver as startReceiver } from './support/receiver.ts';
import { webhookScene } from './support/scene.ts';

test('SEC-8: a job that names another delivery, or an event whose type is no token, sends nothing and costs the endpoint nothing', async () => {
  const scene = await webhookScene();
  const receiver = await startReceiver();
  const { id } = await scene.endpoint({ url: receiver.url });
  await scene.emit('a.b');
  await scene.emit('c.d');
  const [first, second] = await scene.rows<{ job_id: string }>(
    'select job_id from tallyman_webhooks.dispatches order by event_id',
  );
  // The record of one delivery is another's; the type of the other event has a line break in it, as before it was refused.
  await scene.rows(
    `update tallyman.jobs set payload = jsonb_set(payload::jsonb, '{delivery}', to_jsonb($2::text))::json where id = $1`,
    [first?.job_id, randomUUID()],
  );
  await scene.rows(
    `update tallyman_events.events set event_type = E'a\\r\\nx-evil: 1' where event_type = 'c.d'`,
  );
  await scene.deliver();
  await until('both have failed', async () => {
    const rows = await scene.rows(
      `select 1 from tallyman.history where id = any ($1::bigint[]) and status = 'FAILED'`,
      [[first?.job_id, second?.job_id]],
    );
    return rows.length === 2;
  });
  expect(receiver.requests).toEqual([]);
  const [endpoint] = await scene.rows(
    'select failures, open_until from tallyman_webhooks.endpoints where id = $1',
    [id],
  );
  expect(endpoint).toEqual({ failures: 0, open_until: null });
});
