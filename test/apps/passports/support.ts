import { onTestFinished } from 'vitest';
import { documents, items, product, rulePackage } from '../../../src/apps/passports/compile/sample/index.ts';
import { passportsComponent } from '../../../src/apps/passports/component.ts';
import { passportKinds } from '../../../src/apps/passports/jobs/index.ts';
import type { Means } from '../../../src/apps/passports/means.ts';
import { type Work, workIn } from '../../../src/apps/passports/work.ts';
import { uploadDocument } from '../../../src/apps/passports/write/documents.ts';
import { newIssue } from '../../../src/apps/passports/write/issue.ts';
import { addItems } from '../../../src/apps/passports/write/passports.ts';
import { putProduct } from '../../../src/apps/passports/write/products.ts';
import { publishRulePackage, putRulePackage } from '../../../src/apps/passports/write/rules.ts';
import { prepareTenants, TenantDatabase } from '../../../src/engine/database/tenant.ts';
import { silentLogger } from '../../../src/engine/logger.ts';
import { Tallyman } from '../../../src/engine/tallyman.ts';
import { eventsComponent } from '../../../src/events/component.ts';
import { type Bundle, drained, engine } from '../../support/engine.ts';
import { emptyDatabase } from '../../support/postgres.ts';
import { issuedAt, testMeans } from './means.ts';

export { issuedAt, keysAfterRotation, testKeys, testMeans } from './means.ts';

export const passportComponents = [eventsComponent, passportsComponent];

export interface PassportBundle extends Bundle {
  readonly means: Means;
  readonly on: TenantDatabase;
  change<T>(work: (work: Work) => Promise<T>): Promise<T>;
}

export async function passports(means: Means = testMeans(), tenantId = 'default'): Promise<PassportBundle> {
  const bundle = await engine({ components: passportComponents });
  await prepareTenants(bundle.tallyman.database);
  return { ...bundle, ...tenantOf(bundle.tallyman, means, tenantId) };
}

const tenantOf = (
  tallyman: Tallyman,
  means: Means,
  tenantId = 'default',
): Pick<PassportBundle, 'means' | 'on' | 'change'> => ({
  means,
  on: new TenantDatabase(tallyman.database, tenantId),
  change: (work) => changeIn(tallyman, tenantId, means, work),
});

/** A database that `prepare` has filled, with nobody connected: a template for copies. Returns its URL. */
export async function filledDatabase(
  prepare: (bundle: Omit<PassportBundle, 'work'>) => Promise<void>,
): Promise<string> {
  const { url, drop } = await emptyDatabase();
  onTestFinished(drop);
  const tallyman = await Tallyman.open({
    databaseUrl: url,
    migrate: true,
    logger: silentLogger,
    components: passportComponents,
  });
  try {
    await prepareTenants(tallyman.database);
    await prepare({
      url,
      tallyman,
      rows: async <R>(sql: string, values?: unknown[]) =>
        (await tallyman.database.query(sql, values)).rows as R[],
      ...tenantOf(tallyman, testMeans()),
    });
  } finally {
    await tallyman.close();
  }
  return url;
}

/** Runs the chain until no job is left. */
export async function runToEnd(bundle: Omit<PassportBundle, 'work'>): Promise<void> {
  const worker = bundle.tallyman.worker({ kinds: passportKinds(bundle.means), pollIntervalMs: 100 });
  await worker.start();
  try {
    await drained(bundle);
  } finally {
    await worker.stop();
  }
}

export const changeIn = <T>(
  tallyman: Tallyman,
  tenantId: string,
  means: Means,
  work: (work: Work) => Promise<T>,
): Promise<T> =>
  new TenantDatabase(tallyman.database, tenantId).transaction((scope) =>
    work(workIn(tallyman, scope, means.fresh)),
  );

/** Registers the sample battery, publishes its rules and uploads its documents: the chain does the rest. */
export async function putSample(work: Work, means: Means, count = items.length): Promise<string> {
  await putProduct(work, product);
  const some = Array.from({ length: count }, (_, n) => ({
    ...(items[0] as (typeof items)[number]),
    serial: `SP100-${String(n + 1).padStart(6, '0')}`,
  }));
  await addItems(work, product.id, some);
  const rulesId = await putRulePackage(work, rulePackage);
  await publishRulePackage(work, rulesId, means.build);
  const next = newIssue(means, { rulesId, issuedAt, withItems: true });
  for (const { name, input } of documents)
    await uploadDocument(work, { productId: product.id, name, ...input, next });
  return rulesId;
}

export async function runChain({ work, means }: PassportBundle): Promise<void> {
  const worker = await work({ kinds: passportKinds(means), queues: ['passports'], concurrency: 4 });
  onTestFinished(() => worker.stop());
}
