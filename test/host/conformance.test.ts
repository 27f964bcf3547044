import { randomBytes } from 'node:crypto';
import { Counter } from 'prom-client';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { z } from 'zod';
import { key } from '../../src/config/key.ts';
import type { AnyKind } from '../../src/engine/jobs/kind.ts';
import { defineKind } from '../../src/engine/jobs/kind.ts';
import type { WorkerOptions } from '../../src/engine/jobs/worker-options.ts';
import { silentLogger } from '../../src/engine/logger.ts';
import { Tallyman } from '../../src/engine/tallyman.ts';
import type { App, Host } from '../../src/host/app.ts';
import { apps } from '../../src/host/apps.ts';
import { catalogueOf } from '../../src/host/catalogue.ts';
import { componentsOf } from '../../src/host/components.ts';
import { loadConfig } from '../../src/host/config.ts';
import { recordOf, route } from '../../src/host/route.ts';
import { Metrics } from '../../src/observability/metrics.ts';
import { SecretBox } from '../../src/secrets/box.ts';
import { routesOf } from '../../src/server/routes/index.ts';
import { emptyDatabase } from '../support/postgres.ts';
import {
  boundFaults,
  documentationFaults,
  kindFaults,
  listFaults,
  publicRoutes,
  routeFaults,
  tableFaults,
} from './conformance.ts';
import { parcelsApp } from './sample/app.ts';

const parcel = {
  method: 'POST',
  url: '/v1/parcels',
  action: 'parcels.make',
  summary: 'Makes one',
  roles: ['admin'],
  response: z.null(),
  handle: async () => null,
} as const;
const all = [...apps, parcelsApp];
let tallyman: Tallyman;
let host: Omit<Host, 'run' | 'onStop'>;
let close: () => Promise<void>;

beforeAll(async () => {
  const { url, drop } = await emptyDatabase();
  tallyman = await Tallyman.open({
    databaseUrl: url,
    migrate: true,
    components: componentsOf(all),
    logger: silentLogger,
  });
  close = async () => {
    await tallyman.close();
    await drop();
  };
  host = {
    tallyman,
    config: loadConfig(all, { env: { DATABASE_URL: url } }),
    secrets: new SecretBox(randomBytes(32)),
    catalogue: catalogueOf(all),
    logger: silentLogger,
    observe: () => {},
    schedule: async () => {},
    audit: () => {},
  };
});
afterAll(() => close());

/** Starts an app and stops it again; answers the kinds that its workers ran. */
async function kindsOf(app: App): Promise<readonly AnyKind[]> {
  const kinds: AnyKind[] = [];
  const stops: (() => Promise<void>)[] = [];
  const worker = (options: WorkerOptions) => {
    kinds.push(...options.kinds);
    return tallyman.worker(options);
  };
  const recording = new Proxy(tallyman, {
    get: (target, name) => {
      if (name === 'worker') return worker;
      const value = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
  try {
    await app.start?.(
      {
        ...host,
        tallyman: recording,
        run: async (options) => {
          const running = worker(options);
          stops.push(() => running.stop());
          await running.start();
          return running;
        },
        onStop: (stop) => void stops.push(stop),
      },
      host.config,
      await app.metrics?.(new Metrics(tallyman, { process: false }).registry),
    );
  } finally {
    for (const stop of stops.reverse()) await stop();
  }
  return kinds;
}

describe('every app of the list', () => {
  test('is listed behind those it depends on', () => {
    expect(listFaults(apps)).toEqual([]);
  });

  test('keeps tenants apart by row-level security in every table', async () => {
    expect(await tableFaults(tallyman.database)).toEqual([]);
  });

  test.each(apps)(
    '$name: routes have roles, keys and metrics are documented, kinds are declared',
    async (app) => {
      expect([
        ...(await routeFaults(app, host)),
        ...(await documentationFaults(app)),
        ...kindFaults(app, await kindsOf(app)),
      ]).toEqual([]);
    },
  );
});

test('routes that answer without a key are these, each for a reason', async () => {
  expect(await publicRoutes(apps, host)).toEqual([
    // passports: the link on a battery, the keys, and the reads of EN 18222
    'GET /01/:gtin/21/:serial',
    'GET /01/:gtin',
    'GET /01/:gtin/21/:serial/status',
    'GET /01/:gtin/status',
    'GET /.well-known/did.json',
    'GET /v1/dpps/:id',
    'GET /v1/dppsByProductId/:id',
    'GET /v1/dppsByIdAndDate/:id',
    'POST /v1/dppsByProductIds',
    'GET /v1/dpps/:id/elements/:path',
    'GET /v1/dpps/:id/elements/:group/:name',
  ]);
});

test('SEC-8: no request has room for more problems than are told in a moment: lists and records have limits', async () => {
  expect(boundFaults(await routesOf(apps, host))).toEqual([]);
});

describe('a fault is found', () => {
  test.each([
    ['an array', z.array(z.string()), Infinity],
    [
      'an array whose limit comes after what reads it',
      z
        .array(z.int())
        .refine(() => true)
        .max(5),
      Infinity,
    ],
    ['a record', z.record(z.string(), z.string()), Infinity],
    ['names of a record', z.record(z.string().max(5), z.unknown()), Infinity],
    ['what contains itself', z.json(), Infinity],
    ['lists within a list', z.array(z.strictObject({ a: z.array(z.int()).max(100) })).max(1000), 101_000],
    [
      'behind a default, in a union',
      z.union([z.string(), z.array(z.int()).default([])]).optional(),
      Infinity,
    ],
  ])('%s without a limit in a request', (_name, a, problems) => {
    const faults = boundFaults([route({ ...parcel, body: z.strictObject({ a }) })]);
    expect(faults).toHaveLength(1);
    if (Number.isFinite(problems)) expect(faults[0]).toMatch(/can have 10\d{4} problems/);
    else expect(faults[0]).toContain('Infinity');
  });

  test.each([
    ['an array with a limit', z.array(z.int()).min(1).max(10)],
    ['an array of anything', z.array(z.unknown())],
    ['a record of anything', z.record(z.string(), z.unknown())],
    ['`recordOf`', recordOf(5, z.string().max(5), z.string())],
  ])('and %s is none', (_name, a) => {
    expect(boundFaults([route({ ...parcel, body: z.strictObject({ a }) })])).toEqual([]);
  });

  test('a table without row-level security', async () => {
    await tallyman.database.query('create table parcels.forgotten (tenant_id text not null)');
    expect(await tableFaults(tallyman.database)).toEqual([
      'table parcels.forgotten has a tenant_id and no row-level security: call tallyman.isolate',
    ]);
    await tallyman.database.query('drop table parcels.forgotten');
  });

  test('a route without a role', async () => {
    const open = route({
      method: 'GET',
      url: '/v1/open',
      action: 'open.read',
      summary: 'Open to all',
      roles: [],
      response: z.null(),
      handle: async () => null,
    });
    expect(await routeFaults({ ...parcelsApp, routes: async () => [open] }, host)).toEqual([
      'route GET /v1/open of parcels has no role',
    ]);
  });

  test('a public route that does not say why, and one that names roles', async () => {
    const open = route({
      method: 'GET',
      url: '/v1/open',
      action: 'open.read',
      summary: 'Open to all',
      roles: ['guest'],
      public: { why: '', tenantOf: async () => 'default' },
      response: z.null(),
      handle: async () => null,
    });
    expect(await routeFaults({ ...parcelsApp, routes: async () => [open] }, host)).toEqual([
      'route GET /v1/open of parcels is public and does not say why',
      'route GET /v1/open of parcels is public and names roles',
    ]);
  });

  test('a key and a metric that are not documented', async () => {
    const faulty: App = {
      ...parcelsApp,
      config: { 'parcels.secret': key({ schema: z.string(), env: [], doc: '', fallback: '' }) },
      metrics: async (registry) =>
        new Counter({ name: 'tallyman_hidden_total', help: 'Hidden.', registers: [registry] }),
    };
    expect(await documentationFaults(faulty)).toEqual([
      'key parcels.secret of parcels is not documented',
      'metric tallyman_hidden_total of parcels is not documented',
    ]);
  });

  test('a kind that is not declared, one that is public in secret, one across tenants without a reason', () => {
    const kind = (name: string, more = {}) =>
      defineKind({ name, scope: 'tenant', handler: () => {}, ...more });
    expect(
      kindFaults(parcelsApp, [
        kind('parcels.weigh', { public: true }),
        kind('parcels.burn'),
        kind('parcels.record', { public: true, scope: 'all' }),
      ]),
    ).toEqual([
      'kind parcels.burn of parcels is not declared',
      'kind parcels.record of parcels is public and declared internal',
      'kind parcels.record of parcels works across tenants and does not say why',
    ]);
  });

  test('an app that is listed before one that it depends on', () => {
    expect(listFaults(apps.toReversed())).toEqual(['rfid depends on iot, which is not listed before it']);
  });
});
