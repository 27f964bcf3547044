/** A movement in the plant reaches a receiver of webhooks in the enterprise, over two served zones. */
import { expect, onTestFinished, test } from 'vitest';
import { boundaryApp } from '../../../../src/apps/boundary/app.ts';
import { webhooksApp } from '../../../../src/apps/webhooks/app.ts';
import { Webhooks } from '../../../../src/apps/webhooks/webhooks.ts';
import { Database } from '../../../../src/engine/database/database.ts';
import { SecretBox } from '../../../../src/secrets/box.ts';
import { until } from '../../../support/until.ts';
import { receiver } from '../../webhooks/support/receiver.ts';
import { pairedZones, serveZone } from '../zones.ts';

interface Told {
  readonly id: string;
  readonly event_type: string;
  readonly payload: {
    readonly message_id: string;
    readonly subject: string;
    readonly object: { readonly event: { readonly type: string }; readonly payload: { readonly n: number } };
    readonly correlation_id: string;
  };
}

test('BND-16: movement → fact → other zone → event → webhook, each once, in order for each basket, both nodes restarted meanwhile', async () => {
  const { plant, enterprise } = await pairedZones();
  const rules = [{ event: 'rfid.movement', to: 'enterprise', predicate: 'moved_to' }];
  const plantRules = { TALLYMAN_BOUNDARY_EVENTS_AS_FACTS: JSON.stringify(rules) };
  const servePlant = () => serveZone(plant, plantRules);
  const serveEnterprise = () =>
    serveZone(
      enterprise,
      {
        TALLYMAN_BOUNDARY_FACTS_AS_EVENTS: JSON.stringify([{ predicate: 'moved_to', from: 'plant-a' }]),
        TALLYMAN_WEBHOOKS_REQUIRE_HTTPS: 'false',
        TALLYMAN_WEBHOOKS_ALLOW_PRIVATE: '127.0.0.0/8',
      },
      ['boundary', 'webhooks'],
      [boundaryApp, webhooksApp],
    );
  let plantNode = await servePlant();
  let enterpriseNode = await serveEnterprise();

  const to = await receiver();
  const database = await Database.connect({ url: enterprise.url });
  onTestFinished(() => database.close());
  const box = new SecretBox(Buffer.from(enterprise.env.TALLYMAN_SECRET_KEY ?? '', 'base64'));
  const policy = { allowPrivate: ['127.0.0.0/8'], requireHttps: false };
  await new Webhooks(database, { box, policy }).add({
    url: to.url,
    eventTypes: ['boundary.fact.received'],
    ordered: true,
  });

  let moved = 0;
  /** As the part `rfid` writes them. */
  const move = async (count: number): Promise<void> => {
    await plant.rows(
      `select tallyman_events.emit('rfid.movement', 'basket', 'EPC-' || n % 4,
                json_build_object('movement_id', n::text, 'n', n, 'correlation_id', 'read-' || n))
         from generate_series($1::int, $2::int) n`,
      [moved + 1, moved + count],
    );
    moved += count;
  };
  const told = (): Told[] => to.requests.map(({ body }) => JSON.parse(body.toString()) as Told);
  await move(40);
  await until('some are told', () => told().length > 0);
  await enterpriseNode.stop();
  await move(40);
  await plantNode.stop();
  await move(40);
  enterpriseNode = await serveEnterprise();
  plantNode = await servePlant();
  await until('all are told', () => told().length >= moved);

  const all = told();
  expect(new Set(all.map(({ payload }) => payload.message_id)).size).toBe(moved);
  expect(all).toHaveLength(moved);
  for (const basket of [0, 1, 2, 3])
    expect(
      all
        .filter(({ payload }) => payload.subject === `basket:EPC-${basket}`)
        .map(({ payload }) => payload.object.payload.n),
    ).toEqual(Array.from({ length: moved }, (_, i) => i + 1).filter((n) => n % 4 === basket));
  expect(all.find(({ payload }) => payload.object.payload.n === 17)).toMatchObject({
    event_type: 'boundary.fact.received',
    payload: {
      from_zone: 'plant-a',
      to_zone: 'enterprise',
      predicate: 'moved_to',
      correlation_id: 'read-17',
      object: { event: { type: 'rfid.movement', aggregate_id: 'EPC-1' } },
    },
  });
});
