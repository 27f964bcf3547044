import { randomBytes } from 'node:crypto';
import { onTestFinished } from 'vitest';
import { product, rulePackage } from '../../src/apps/passports/compile/sample/index.ts';
import { TagReadProcessor } from '../../src/apps/rfid/process.ts';
import { CachedDevices } from '../../src/apps/rfid/reference/cached-devices.ts';
import type { Config } from '../../src/config/keys.ts';
import { engineComponent } from '../../src/engine/database/migrate.ts';
import type { AnyKind } from '../../src/engine/jobs/kind.ts';
import { silentLogger } from '../../src/engine/logger.ts';
import type { Tallyman } from '../../src/engine/tallyman.ts';
import type { App, RouteHost } from '../../src/host/app.ts';
import { apps as allApps } from '../../src/host/apps.ts';
import { catalogueOf } from '../../src/host/catalogue.ts';
import { componentsOf } from '../../src/host/components.ts';
import { loadConfig } from '../../src/host/config.ts';
import { openRuntime } from '../../src/host/process/open.ts';
import type { Role } from '../../src/host/roles.ts';
import { Metrics } from '../../src/observability/metrics.ts';
import { SecretBox } from '../../src/secrets/box.ts';
import { ApiKeys } from '../../src/server/access/keys.ts';
import { Tenants } from '../../src/server/access/tenants.ts';
import { type RunningServer, startServer } from '../../src/server/server.ts';
import { migratedDatabase } from '../support/postgres.ts';

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: whatever the server said
  readonly body: any;
}

export type Ask = (
  method: string,
  path: string,
  body?: unknown,
  headers?: Record<string, string>,
) => Promise<Answer>;

export interface TestServer {
  readonly url: string;
  readonly databaseUrl: string;
  readonly server: RunningServer;
  readonly tallyman: Tallyman;
  readonly box: SecretBox;
  /** The master secret. */
  readonly master: Buffer;
  readonly keys: ApiKeys;
  /** Without a key. */
  readonly ask: Ask;
  /** Another server on the same database, as after a restart or in another process. */
  again(): Promise<RunningServer>;
  /** With a new key of this role; the tenant is made where there is none. */
  as(role: Role, tenantId?: string, access?: string): Promise<Ask>;
  /** What routes are made of. */
  readonly host: RouteHost;
  rows<R>(sql: string, values?: unknown[]): Promise<R[]>;
}

const isRaw = (body: unknown): body is string | Uint8Array<ArrayBuffer> =>
  typeof body === 'string' || body instanceof Uint8Array;

/** A database, a server on it, and an end to both when the test ends. */
export async function server(
  options: { config?: Partial<Config>; kinds?: readonly AnyKind[]; apps?: readonly App[] } = {},
): Promise<TestServer> {
  const { apps = allApps } = options;
  const components = componentsOf(apps);
  const { url: databaseUrl, drop } = await migratedDatabase([engineComponent, ...components]);
  const master = randomBytes(32);
  const config: Config = {
    ...loadConfig(apps, {
      env: { DATABASE_URL: databaseUrl, TALLYMAN_SECRET_KEY: master.toString('base64') },
    }),
    'server.port': 0,
    'server.ratePerSecond': 100_000,
    'server.rateBurst': 100_000,
    'webhooks.allowPrivateAddresses': true,
    'labels.allowPrivateAddresses': true,
    'webhooks.requireHttps': false,
    ...options.config,
  };
  const runtime = await openRuntime(config, {
    logger: silentLogger,
    components,
    needs: components,
  });
  const { tallyman } = runtime;
  const box = new SecretBox(master);
  const start = () =>
    startServer({
      apps,
      config,
      runtime,
      metrics: new Metrics(tallyman),
      box,
      kinds: options.kinds ?? [],
      version: '0.0.0',
      logger: silentLogger,
    });
  const running = await start();
  onTestFinished(async () => {
    await running.stop();
    await runtime.close();
    await drop();
  });
  const keys = new ApiKeys(tallyman.database, box);
  const asking =
    (authorization?: string): Ask =>
    async (method, path, body, headers = {}) => {
      const response = await fetch(`${running.url}${path}`, {
        method,
        headers: {
          ...(authorization && { authorization }),
          ...(body !== undefined && { 'content-type': 'application/json' }),
          ...headers,
        },
        ...(body !== undefined && { body: isRaw(body) ? body : JSON.stringify(body) }),
      });
      const text = await response.text();
      const isJson = response.headers.get('content-type')?.includes('json');
      return {
        status: response.status,
        headers: response.headers,
        body: isJson && text !== '' ? JSON.parse(text) : text,
      };
    };
  return {
    url: running.url,
    databaseUrl,
    server: running,
    tallyman,
    box,
    master,
    host: { tallyman, config, secrets: box, catalogue: catalogueOf(apps) },
    keys,
    ask: asking(),
    again: async () => {
      const another = await start();
      // Before the database is dropped: these run last first.
      onTestFinished(() => another.stop());
      return another;
    },
    as: async (role, tenantId = 'default', access) => {
      const tenants = new Tenants(tallyman.database);
      if (!(await tenants.list()).some(({ id }) => id === tenantId)) await tenants.create(tenantId);
      const { key } = await keys.create({ tenantId, name: role, role, ...(access && { access }) });
      return asking(`Bearer ${key}`);
    },
    rows: async <R>(sql: string, values?: unknown[]) =>
      (await tallyman.database.query(sql, values)).rows as R[],
  };
}

/** Kinds that SQL and the API can enqueue by name, as workers register them. */
export async function registerKind({ rows }: Pick<TestServer, 'rows'>, name: string): Promise<void> {
  await rows('select tallyman.register_kind($1, is_public => true)', [name]);
}

/** Makes a dead letter of a job, as its last failed attempt would. */
export async function bury({ rows }: Pick<TestServer, 'rows'>, id: string): Promise<void> {
  await rows('update tallyman.jobs set max_attempts = 1 where id = $1', [id]);
  await rows(
    `select tallyman.attempt_failed(json_build_array(json_build_object('id', j.id, 'pos', j.pos, 'delay_ms', 0,
       'error', json_build_object('code', 'X', 'message', 'it died'))), 'w', 0) from tallyman.jobs j where j.id = $1`,
    [id],
  );
}

/** GS1's own example of a GRAI-96. */
export const epc = '3314257BF40C0E4000000190';

/** One of everything in this tenant: what another tenant must not see. */
export async function furnish(test: TestServer, ask: Ask): Promise<Record<string, string>> {
  await registerKind(test, 'noop');
  const made = async (answer: Promise<Answer>): Promise<Answer['body']> => {
    const { status, body } = await answer;
    if (status >= 300) throw new Error(JSON.stringify(body));
    return body;
  };
  const job = await made(
    ask('POST', '/v1/jobs', { kind: 'noop', lane: 'l', payload: { secret: 'of this tenant' } }),
  );
  const dead = await made(ask('POST', '/v1/jobs', { kind: 'noop', payload: { secret: 'dead' } }));
  await bury(test, dead.id);
  const [lane] = await test.rows<{ id: string }>('select lane as id from tallyman.jobs where id = $1', [
    job.id,
  ]);
  const webhook = await made(ask('POST', '/v1/webhooks', { url: 'http://127.0.0.1:9/hook' }));
  const ping = await made(ask('POST', `/v1/webhooks/${webhook.id}/ping`));
  await made(ask('PUT', '/v1/schedules/nightly', { cron: '0 3 * * *', kind: 'noop' }));
  const key = await made(ask('POST', '/v1/keys', { name: 'k', role: 'auditor' }));
  const dock = await made(ask('POST', '/v1/locations', { name: 'dock' }));
  await made(ask('PUT', '/v1/devices/fx-1', { location_id: dock.id, role: 'dock-door' }));
  const [home] = await test.rows<{ tenantId: string }>(
    'select tenant_id as "tenantId" from tallyman.jobs where id = $1',
    [job.id],
  );
  const { database } = test.tallyman;
  const processor = new TagReadProcessor({ database, devices: new CachedDevices({ database }) });
  const read = {
    epc,
    deviceId: 'fx-1',
    eventTimestamp: '2026-03-01T09:30:00Z',
    processorType: 'MQTT' as const,
  };
  const [counted] = await processor.processTagReads([{ ...read, tenantId: home?.tenantId ?? '' }]);
  if (!counted?.success) throw new Error(String(counted?.errorMessage));
  await furnishLabels(ask, made);
  const passports = await furnishPassports(ask, made);
  return {
    job: job.id,
    dead: dead.id,
    lane: lane?.id ?? '',
    webhook: webhook.id,
    delivery: ping.delivery_id,
    schedule: 'nightly',
    key: key.id,
    basket: epc,
    location: dock.id,
    device: 'fx-1',
    store: 's1',
    label: labelMac,
    labelType: 'small',
    labelTemplate: 'tag',
    ...passports,
  };
}

/** A model with a battery, a document that waits to be read, a snapshot that waits to be built, and rules. */
async function furnishPassports(
  ask: Ask,
  made: (answer: Promise<Answer>) => Promise<Answer['body']>,
): Promise<Record<string, string>> {
  const { id, manufacturerId, ...model } = product;
  const url = `/v1/passports/products/${id}`;
  await made(ask('PUT', url, { ...model, manufacturer_id: manufacturerId }));
  const battery = { serial: 'S-1', manufactured_on: '2027-01', manufactured_at: 'Here' };
  await made(ask('POST', `${url}/items`, [battery]));
  const passport = await made(ask('GET', '/v1/passports?serial=S-1'));
  const document = await made(
    ask('POST', `${url}/documents?kind=data_sheet&name=sheet.json`, [{ attribute: 'secret', value: '1' }]),
  );
  const snapshot = await made(ask('POST', `${url}/snapshots`));
  const rules = await made(ask('POST', '/v1/passports/rules', { package: rulePackage }));
  return {
    product: id,
    passport: passport.items[0].id,
    document: document.version_id,
    snapshot: snapshot.id,
    rules: rules.id,
  };
}

export const labelMac = '00159DA0102B';
export const labelSvg =
  '<svg xmlns="http://www.w3.org/2000/svg" width="200" height="200"><text x="4" y="80" font-size="24">{{price}}</text></svg>';

/** A store whose gateway is not there, with one label that shows a product. */
export async function furnishLabels(
  ask: Ask,
  made: (answer: Promise<Answer>) => Promise<unknown> = (answer) => answer,
): Promise<void> {
  const gateway = {
    kind: 'aims',
    url: 'http://127.0.0.1:9',
    company: 'c',
    store: 's',
    username: 'u',
    password: 'a secret password',
  };
  await made(ask('PUT', '/v1/stores/s1', { gateway }));
  await made(ask('PUT', '/v1/label-types/small', { width: 200, height: 200, palette: 'bw' }));
  await made(ask('PUT', '/v1/label-templates/tag', { svg: labelSvg }));
  await made(
    ask('POST', '/v1/stores/s1/products', { products: [{ sku: 'P0', name: 'Milk', price: '1.00' }] }),
  );
  await made(ask('POST', '/v1/labels', { labels: [{ mac: labelMac, store: 's1', type: 'small' }] }));
  await made(
    ask('POST', '/v1/label-assignments', { assignments: [{ mac: labelMac, sku: 'P0', template: 'tag' }] }),
  );
}
