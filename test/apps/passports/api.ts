import { onTestFinished } from 'vitest';
import { passportsApp } from '../../../src/apps/passports/app.ts';
import { documents, items, product, rulePackage } from '../../../src/apps/passports/compile/sample/index.ts';
import { passportsKeys } from '../../../src/apps/passports/config.ts';
import { passportKinds } from '../../../src/apps/passports/jobs/index.ts';
import { meansOf } from '../../../src/apps/passports/means.ts';
import type { Config } from '../../../src/config/keys.ts';
import { settingsOf } from '../../../src/host/app.ts';
import { type Answer, type Ask, server, type TestServer } from '../../server/support.ts';
import { until } from '../../support/until.ts';

export const signingConfig = {
  'passports.signingKey': Buffer.alloc(32, 7).toString('base64'),
  'passports.signingKeyId': 'test-1',
  'passports.host': 'passports.example',
} as const;

export interface PassportServer extends TestServer {
  /** Runs the chain until nothing is left to do. */
  settle(): Promise<void>;
}

/** The API with passports alone, and workers that run when they are asked to. */
export async function passportServer(config: Partial<Config> = {}): Promise<PassportServer> {
  const given = { ...signingConfig, ...config } as Partial<Config>;
  const test = await server({ apps: [passportsApp], config: given });
  const worker = test.tallyman.worker({
    kinds: passportKinds(meansOf(settingsOf(passportsKeys, test.host.config))),
    concurrency: 4,
    pollIntervalMs: 100,
    stopTimeoutMs: 2000,
  });
  let started: Promise<void> | undefined;
  onTestFinished(() => worker.stop());
  return {
    ...test,
    settle: async () => {
      started ??= worker.start();
      await started;
      await until(
        'the chain is done',
        async () => (await test.rows('select 1 from tallyman.jobs limit 1')).length === 0,
        120_000,
      );
    },
  };
}

export async function made(answer: Promise<Answer>): Promise<Answer['body']> {
  const { status, body } = await answer;
  if (status >= 300) throw new Error(`${status} ${JSON.stringify(body)}`);
  return body;
}

export const csv = { 'content-type': 'text/csv' };
export const productUrl = `/v1/passports/products/${product.id}`;
export const documentUrl = (name: string, kind: string, more = ''): string =>
  `${productUrl}/documents?kind=${kind}&name=${encodeURIComponent(name)}${more}`;

export const itemsCsv = [
  'serial,manufactured_on,manufactured_at,status',
  ...items.map((item) => `${item.serial},${item.manufacturedOn},"${item.manufacturedAt}",${item.status}`),
].join('\n');

export async function putModel(ask: Ask): Promise<void> {
  const { id: _, manufacturerId, ...rest } = product;
  await made(ask('PUT', productUrl, { ...rest, manufacturer_id: manufacturerId }));
}

/** Model, batteries and published rules of the sample, over the API; answers the id of the rules. */
export async function putSample(ask: Ask): Promise<string> {
  await putModel(ask);
  await made(ask('POST', `${productUrl}/items`, itemsCsv, csv));
  const { id } = await made(ask('POST', '/v1/passports/rules', { package: rulePackage }));
  await made(ask('POST', `/v1/passports/rules/${id}/publish`));
  return id;
}

/** The whole sample, compiled and active: answers what has been made. */
export async function activeSample(
  test: PassportServer,
  ask: Ask,
): Promise<{ readonly rulesId: string; readonly passportId: string; readonly versionId: string }> {
  const rulesId = await putSample(ask);
  for (const { name, input } of documents)
    await made(
      ask(
        'POST',
        documentUrl(name, input.kind, `&rules=${rulesId}&with_items=true&issued_at=2027-02-18T00:00:00Z`),
        input.bytes,
        csv,
      ),
    );
  await test.settle();
  const found = await made(ask('GET', '/v1/passports?serial=SP100-000002'));
  const [{ id, active_version_id: versionId }] = found.items;
  return { rulesId, passportId: id, versionId };
}
