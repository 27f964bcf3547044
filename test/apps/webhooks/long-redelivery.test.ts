import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { redeliverKind } from '../../../src/apps/webhooks/redelivery-kind.ts';
import { server } from '../../server/support.ts';
import { until } from '../../support/until.ts';

test('SEC-5, WH-9: a long range goes on as a job; one that is killed in the middle sends each event once', async () => {
  const scene = await server();
  const ask = await scene.as('admin');
  const webhook = await ask('POST', '/v1/webhooks', { url: 'http://127.0.0.1:9/hook', event_types: ['a.b'] });
  await scene.rows(
    `select tallyman_events.emit_many(array_agg('a.b'::text), array_agg('a'::text), array_agg(n::text),
       array_agg('{}'::json), array_agg('default'::text), null, array_agg(null::timestamptz))
       from generate_series(1, 2500) n`,
  );
  const answer = await ask('POST', `/v1/webhooks/${webhook.body.id}/redeliver`, {
    from: new Date(Date.now() - 3_600_000).toISOString(),
    to: new Date(Date.now() + 3_600_000).toISOString(),
    only_failed: false,
  });
  expect(answer).toMatchObject({ status: 202, body: { redelivered: 1000, job_id: expect.any(String) } });

  const blocker = new pg.Client({ connectionString: scene.databaseUrl });
  await blocker.connect();
  onTestFinished(() => blocker.end());
  await blocker.query('begin');
  await blocker.query('lock table tallyman_webhooks.dispatches in share mode');
  const worker = scene.tallyman.worker({ kinds: [redeliverKind], queues: ['webhooks'] });
  await worker.start();
  onTestFinished(() => worker.stop());
  await until('the job is in the middle of its transaction', async () => {
    const cut = await scene.rows(
      `select pg_terminate_backend(pid) from pg_locks
        where relation = 'tallyman_webhooks.dispatches'::regclass and not granted`,
    );
    return cut.length > 0;
  });
  await blocker.query('rollback');
  await until('all parts are done', async () => {
    const jobs = await scene.rows(`select 1 from tallyman.jobs where kind = 'webhook.redeliver'`);
    return jobs.length === 0;
  });
  const [sent] = await scene.rows(
    `select count(*)::integer as deliveries, count(distinct event_id)::integer as events from tallyman_webhooks.dispatches`,
  );
  expect(sent).toEqual({ deliveries: 2500, events: 2500 });
});
