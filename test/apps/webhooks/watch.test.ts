import { Registry } from 'prom-client';
import { expect, onTestFinished, test } from 'vitest';
import { exposeEvents } from '../../../src/apps/webhooks/metrics.ts';
import { EventWatch } from '../../../src/apps/webhooks/watch.ts';
import type { Database } from '../../../src/engine/database/database.ts';
import { silentLogger } from '../../../src/engine/logger.ts';
import { until } from '../../support/engine.ts';
import { webhookScene } from './support/scene.ts';

test('WH-1: an emitting transaction that stays open is a metric and a warning that names it', async () => {
  const scene = await webhookScene();
  await scene.endpoint({ url: 'http://127.0.0.1:9/' });
  const warnings: unknown[] = [];
  const { database } = scene.tallyman;
  const registry = new Registry();
  const watch = new EventWatch({
    database: {
      query: (text: string, values?: unknown[]) => database.query(text, values),
      logger: { ...silentLogger, warn: (fields: unknown) => void warnings.push(fields) },
    } as Pick<Database, 'query' | 'logger'>,
    observer: exposeEvents(registry),
    warnAfterMs: 1,
  });
  const value = async (name: string): Promise<number | undefined> =>
    (await registry.getSingleMetric(name)?.get())?.values[0]?.value;
  await watch.look();
  expect(await value('tallyman_events_horizon_age_seconds')).toBe(0);
  const open = await database.dedicated('the long one');
  onTestFinished(() => open.end());
  await open.query('begin');
  await open.query(`select tallyman_events.emit('a', 't', '1')`);
  await scene.events.emit({ type: 'b', aggregateType: 't', aggregateId: '2', payload: {} });
  await until('it is seen', async () => {
    await watch.look();
    return (await value('tallyman_events_horizon_age_seconds')) !== 0;
  });
  await watch.look();
  expect(await value('tallyman_events_listener_lag_seconds')).toBeGreaterThan(0);
  expect(warnings).toEqual([
    { pid: expect.any(Number), application: 'the long one', seconds: expect.any(Number) },
  ]);
  await open.query('commit');
  await scene.fanOut();
  await watch.look();
  expect(await value('tallyman_events_horizon_age_seconds')).toBe(0);
  expect(await value('tallyman_events_listener_lag_seconds')).toBe(0);
  expect(await value('tallyman_events_set_aside')).toBe(0);
  expect(await value('tallyman_webhooks_held_back')).toBe(0);
});
