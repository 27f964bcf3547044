/** One database with every app, two tenants that have one of everything, and workers that run every kind. */
import { randomBytes } from 'node:crypto';
import { onTestFinished } from 'vitest';
import { putDevice, putLocation } from '../../src/apps/iot/index.ts';
import { type LabelSimulator, startLabelSimulator } from '../../src/apps/labels/gateways/simulator/index.ts';
import {
  assign,
  Gateways,
  labelKinds,
  putLabels,
  putLabelType,
  putProducts,
  putStore,
  putTemplate,
} from '../../src/apps/labels/index.ts';
import { auditHeadsKind } from '../../src/apps/passports/jobs/audit-heads.ts';
import { passportKinds } from '../../src/apps/passports/jobs/index.ts';
import { furnishSample } from '../../src/apps/passports/sample.ts';
import { randomFresh } from '../../src/apps/passports/work.ts';
import { requestExport } from '../../src/apps/passports/write/exports.ts';
import { CachedDevices, planShipments, TagReadProcessor } from '../../src/apps/rfid/index.ts';
import { startIntake } from '../../src/apps/rfid/intake/index.ts';
import { webhookKinds } from '../../src/apps/webhooks/delivery/kinds.ts';
import { webhookFollower } from '../../src/apps/webhooks/follower.ts';
import { Webhooks } from '../../src/apps/webhooks/webhooks.ts';
import type { AnyKind } from '../../src/engine/jobs/kind.ts';
import { emit } from '../../src/events/emit.ts';
import { purgeEventsKind } from '../../src/events/purge.ts';
import { apps } from '../../src/host/apps.ts';
import { componentsOf } from '../../src/host/components.ts';
import { SecretBox } from '../../src/secrets/box.ts';
import { basketTag } from '../../src/simulate/tags.ts';
import { changeIn, issuedAt, testMeans } from '../apps/passports/support.ts';
import { type Receiver, receiver } from '../apps/webhooks/support/receiver.ts';
import { hurry, local } from '../apps/webhooks/support/scene.ts';
import { type Bundle, engine, until } from '../support/engine.ts';

/** What one tenant has, by the ids that payloads name. */
export interface Furniture {
  readonly tenantId: string;
  readonly simulator: LabelSimulator;
  readonly receiver: Receiver;
  readonly mac: string;
  readonly label: string;
  readonly template: string;
  readonly endpoint: string;
  readonly event: string;
  readonly delivery: string;
  readonly reader: string;
  readonly camera: string;
  readonly oblpn: string;
  readonly documentVersion: string;
  readonly snapshot: string;
  readonly rules: string;
  readonly modelVersion: string;
  readonly itemVersion: string;
  readonly passportExport: string;
}

export interface Scene extends Bundle {
  readonly kinds: readonly AnyKind[];
  readonly a: Furniture;
  readonly b: Furniture;
  /** Pages that the warehouse system, which is tenant b's, was asked for. */
  readonly pagesAsked: string[];
  /** A job as a tenant would smuggle it in: by the SQL function, which refuses nothing. */
  smuggle(kind: string, payload: unknown): Promise<string>;
  /** No job is left, of any tenant; retries do not wait. */
  idle(): Promise<void>;
  /** Everything that tenant b has and was sent. */
  stateOfB(): Promise<unknown>;
}

const svg = (text: string): string =>
  `<svg xmlns="http://www.w3.org/2000/svg" width="200" height="200"><text x="4" y="80" font-size="24">${text} {{price}}</text></svg>`;

export const readTime = '2026-03-01T09:30:00Z';

export async function twoTenants(): Promise<Scene> {
  const bundle = await engine({ components: componentsOf(apps), poolSize: 20 });
  const { tallyman } = bundle;
  const { database } = tallyman;
  const box = new SecretBox(randomBytes(32));
  const gateways = new Gateways(box);
  onTestFinished(() => gateways.close());
  const means = testMeans({ fresh: randomFresh });
  const pagesAsked: string[] = [];
  const intake = await startIntake({
    tallyman,
    worker: { pollIntervalMs: 100 },
    upkeep: {
      plates: {
        tenantId: 'b',
        cron: '0 0 1 1 *',
        system: {
          plates: async (cursor) => {
            pagesAsked.push(String(cursor));
            return { plates: [{ oblpn: 'NEW', shipment: 'NEW' }], nextCursor: null };
          },
        },
      },
      retention: { rawMs: 365 * 24 * 3_600_000, processedMs: 365 * 24 * 3_600_000 },
    },
  });
  onTestFinished(() => intake.stop());
  const ours = [
    // Not while the test runs: the answer would be a change of its tenant's own.
    ...labelKinds({ database, gateways, askAfterMs: 3_600_000 }),
    ...webhookKinds({ database, box, policy: local }),
    purgeEventsKind(database),
    ...passportKinds(means),
    auditHeadsKind(database, means),
  ];
  await bundle.work({ kinds: ours, concurrency: 4 });
  const idle = () =>
    until(
      'nothing is left to do',
      async () => {
        await hurry(bundle);
        return (await bundle.rows('select 1 from tallyman.jobs limit 1')).length === 0;
      },
      60_000,
    );
  // Passports first: their ids are known once they are compiled.
  for (const tenantId of ['a', 'b']) await furnishSample(tallyman, tenantId, means, { issuedAt });
  await idle();
  const a = await furnish(bundle, box, 'a', 1);
  const b = await furnish(bundle, box, 'b', 2);
  await idle();
  return {
    ...bundle,
    kinds: [...intake.kinds, ...ours],
    a,
    b,
    pagesAsked,
    idle,
    smuggle: async (kind, payload) => {
      const [job] = await bundle.rows<{ id: string }>(
        `select tallyman.enqueue($1, $2, tenant_id => 'a', max_attempts => 1) as id`,
        [kind, JSON.stringify(payload)],
      );
      return job?.id ?? '';
    },
    stateOfB: async () => ({
      rows: await rowsOf(bundle, 'b'),
      images: b.simulator.simulation.labels.get(b.mac)?.images.length,
      requests: b.receiver.requests.length,
      pagesAsked: pagesAsked.length,
    }),
  };
}

/** Every row of a tenant, in every table that has tenants. Any drift check notes when labels were last seen. */
async function rowsOf({ rows }: Bundle, tenantId: string): Promise<Record<string, readonly string[]>> {
  const all: Record<string, readonly string[]> = {};
  for (const { name } of await rows<{ name: string }>('select name from tallyman.isolated_tables order by 1'))
    all[name] = (
      await rows<{ row: string }>(
        `select (to_jsonb(t) - 'seen_at')::text as row from ${name} t where tenant_id = $1 order by 1`,
        [tenantId],
      )
    ).map(({ row }) => row);
  return all;
}

async function furnish(bundle: Bundle, box: SecretBox, tenantId: string, nth: number): Promise<Furniture> {
  const { database } = bundle.tallyman;
  const simulator = await startLabelSimulator();
  onTestFinished(() => simulator.close());
  const mac = `00159DA0000${nth}`;
  const gateway = {
    kind: 'aims' as const,
    url: simulator.url,
    company: 'c',
    store: 's',
    username: 'u',
    password: 'p',
    timeoutMs: 30_000,
  };
  await database.transaction(async (tx) => {
    const change = { tx, tenantId };
    await putStore(change, box, { code: 's1', gateway });
    await putLabelType(change, { name: 'small', width: 200, height: 200, palette: 'bw', pages: 1 });
    await putTemplate(change, 'tag', svg(tenantId));
    await putProducts(change, 's1', [{ sku: 'P0', name: 'Milk', price: '1.00' }]);
    await putLabels(change, [{ mac, store: 's1', type: 'small' }]);
    await assign(change, [{ mac, sku: 'P0', template: 'tag' }]);
  });
  const hook = await receiver();
  const webhooks = new Webhooks(database, { box, policy: local });
  const { endpoint } = await webhooks.add({ url: hook.url, eventTypes: ['thing.*'], tenantId });
  const { position } = await emit(database, {
    type: 'thing.happened',
    aggregateType: 'thing',
    aggregateId: '1',
    payload: { secret: `of ${tenantId}` },
    tenantId,
  });
  await webhookFollower(database).turn();
  const dock = await putLocation(database, tenantId, `dock of ${tenantId}`);
  const reader = `reader-${tenantId}`;
  const camera = `camera-${tenantId}`;
  await putDevice(database, { tenantId, serial: reader, locationId: dock.id, role: 'dock-door' });
  await putDevice(database, { tenantId, serial: camera, locationId: dock.id, role: 'camera' });
  const oblpn = `PLATE-${tenantId}`;
  await database.transaction((tx) => planShipments(tx, tenantId, [{ oblpn, shipment: `S-${tenantId}` }]));
  await new TagReadProcessor({ database, devices: new CachedDevices({ database }) }).processTagReads([
    { epc: basketTag(nth), deviceId: reader, eventTimestamp: readTime, processorType: 'MQTT', tenantId },
  ]);
  const one = async (sql: string): Promise<string> =>
    (await bundle.rows<{ id: string }>(sql, [tenantId]))[0]?.id ?? '';
  const itemVersion = await one(
    'select id from passports.versions where tenant_id = $1 and item is not null order by id limit 1',
  );
  const { id: passportExport } = await changeIn(
    bundle.tallyman,
    tenantId,
    testMeans({ fresh: randomFresh }),
    (work) => requestExport(work, itemVersion, { format: 'json', reader: 'owner', language: 'en' }),
  );
  return {
    tenantId,
    simulator,
    receiver: hook,
    mac,
    label: await one('select id from labels.labels where tenant_id = $1'),
    template: await one('select id from labels.template_versions where tenant_id = $1'),
    endpoint: endpoint.id,
    event: position ?? '',
    delivery: await one('select id from tallyman_webhooks.dispatches where tenant_id = $1'),
    reader,
    camera,
    oblpn,
    documentVersion: await one('select id from passports.document_versions where tenant_id = $1 limit 1'),
    snapshot: await one('select id from passports.snapshots where tenant_id = $1'),
    rules: await one('select id from passports.rule_packages where tenant_id = $1'),
    modelVersion: await one('select id from passports.versions where tenant_id = $1 and item is null'),
    itemVersion,
    passportExport,
  };
}
