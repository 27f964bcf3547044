import { onTestFinished } from 'vitest';
import { passportsApp } from '../../../../src/apps/passports/app.ts';
import { product } from '../../../../src/apps/passports/compile/sample/index.ts';
import { passportKinds } from '../../../../src/apps/passports/jobs/index.ts';
import { findPassportOf, type StoredPassport } from '../../../../src/apps/passports/store/index.ts';
import type { Work } from '../../../../src/apps/passports/work.ts';
import { newIssue } from '../../../../src/apps/passports/write/issue.ts';
import { requestModelVersion } from '../../../../src/apps/passports/write/versions.ts';
import type { Config } from '../../../../src/config/keys.ts';
import { TenantDatabase } from '../../../../src/engine/database/tenant.ts';
import { type Ask, server, type TestServer } from '../../../server/support.ts';
import { until } from '../../../support/until.ts';
import { changeIn, putSample, testMeans } from '../support.ts';

const means = testMeans();

/** The readers of BPC-12, and the callers that count as each of them. */
export const callers = [
  'nobody',
  'other tenant',
  'producer',
  'guest',
  'authority',
  'admin',
  'operator',
  'auditor',
] as const;
export type CallerName = (typeof callers)[number];

export interface PublicServer extends TestServer {
  /** The serial numbers are SP100-000001 and so on. */
  passport(serial: string | null): Promise<StoredPassport>;
  change<T>(work: (work: Work) => Promise<T>): Promise<T>;
  /** Runs the chain until nothing is left to do. */
  settle(): Promise<void>;
  caller(name: CallerName): Promise<Ask>;
  /** New versions of the model and its batteries, which take the place of those that count. */
  reissue(issuedAt: string): Promise<void>;
}

/** The API, with the sample compiled and active. */
export async function publicServer(count = 1, config: Partial<Config> = {}): Promise<PublicServer> {
  const test = await server({
    apps: [passportsApp],
    config: {
      'passports.signingKey': Buffer.alloc(32, 7).toString('base64'),
      'passports.signingKeyId': 'test-1',
      'passports.host': 'passports.example',
      ...config,
    } as Partial<Config>,
  });
  const change = <T>(work: (work: Work) => Promise<T>): Promise<T> =>
    changeIn(test.tallyman, 'default', means, work);
  const worker = test.tallyman.worker({ kinds: passportKinds(means), queues: ['passports'], concurrency: 4 });
  onTestFinished(() => worker.stop());
  const settle = () =>
    until(
      'the chain is done',
      async () => (await test.rows('select 1 from tallyman.jobs limit 1')).length === 0,
      120_000,
    );
  await change((work) => putSample(work, means, count));
  await worker.start();
  await settle();
  const on = new TenantDatabase(test.tallyman.database, 'default');
  const asking =
    (key: string): Ask =>
    (method, path, body, headers = {}) =>
      test.ask(method, path, body, { ...headers, authorization: `Bearer ${key}` });
  return {
    ...test,
    change,
    settle,
    passport: async (serial) => {
      const found = await findPassportOf(on, product.gtin, serial);
      if (!found) throw new Error(`there is no passport of ${serial}`);
      return found;
    },
    reissue: async (issuedAt) => {
      const [rules] = await test.rows<{ id: string }>('select id from passports.rule_packages');
      const issue = newIssue(means, {
        rulesId: rules?.id ?? '',
        issuedAt: new Date(issuedAt),
        withItems: true,
      });
      await change((work) => requestModelVersion(work, product.id, issue));
      await settle();
    },
    caller: async (name) => {
      if (name === 'nobody') return test.ask;
      if (name === 'other tenant') return test.as('admin', 'another');
      if (name !== 'guest' && name !== 'authority') return test.as(name);
      const access = name === 'guest' ? 'passports.legitimate_interest' : 'passports.authority';
      const { key } = await test.keys.create({ tenantId: 'default', name, role: 'guest', access });
      return asking(key);
    },
  };
}

export const readerOfCaller = {
  nobody: 'public',
  'other tenant': 'public',
  producer: 'public',
  guest: 'legitimate_interest',
  authority: 'authority',
  admin: 'owner',
  operator: 'owner',
  auditor: 'owner',
} as const;

/** Texts that only readers of one point may see, from the sample's documents. */
export const secrets = {
  2: ['dismantling.pdf', 'ethyl methyl carbonate', 'bill-of-materials.csv'],
  3: ['pack-100-2026.pdf', 'test-reports.csv'],
  4: ['individual.csv', '"annualCycles"', '45600', '43.7', '"value":437'],
} as const;

export const link = '/01/09506000134352/21/SP100-000001';
export const linkId = encodeURIComponent(`https://passports.example${link}`);
