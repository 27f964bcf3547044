import { TenantDatabase } from '../../engine/database/tenant.ts';
import type { Tallyman } from '../../engine/tallyman.ts';
import { documents, items, product, rulePackage } from './compile/sample/index.ts';
import type { Means } from './means.ts';
import { type Work, workIn } from './work.ts';
import { uploadDocument } from './write/documents.ts';
import { newIssue } from './write/issue.ts';
import { addItems } from './write/passports.ts';
import { putProduct } from './write/products.ts';
import { publishRulePackage, putRulePackage } from './write/rules.ts';

export interface FurnishedSample {
  readonly productId: string;
  readonly gtin: string;
  readonly serials: readonly string[];
  readonly rulesId: string;
}

export interface SampleOptions {
  readonly issuedAt: Date;
  /** Told of each step before the commit. */
  readonly progress?: (step: string) => void;
}

/**
 * Puts the sample battery in place for a tenant: model, items, rules, documents. All of it commits at once, with the jobs
 * that compile, sign and activate the passports; a worker does the rest. Once more changes nothing.
 */
export const furnishSample = (
  tallyman: Tallyman,
  tenantId: string,
  means: Means,
  options: SampleOptions,
): Promise<FurnishedSample> =>
  new TenantDatabase(tallyman.database, tenantId).transaction((scope) =>
    furnishIn(workIn(tallyman, scope, means.fresh), means, options),
  );

export async function furnishIn(
  work: Work,
  means: Means,
  { issuedAt, progress = () => {} }: SampleOptions,
): Promise<FurnishedSample> {
  progress(`model ${product.name}, ${items.length} batteries`);
  await putProduct(work, product);
  await addItems(work, product.id, items);
  progress(
    `rule package ${rulePackage.id} ${rulePackage.version}, ${rulePackage.testCases.length} test cases`,
  );
  const rulesId = await putRulePackage(work, rulePackage);
  await publishRulePackage(work, rulesId, means.build);
  const next = newIssue(means, { rulesId, issuedAt, withItems: true });
  for (const { name, input } of documents) {
    progress(`document ${name}`);
    await uploadDocument(work, { productId: product.id, name, ...input, next });
  }
  return { productId: product.id, gtin: product.gtin, serials: items.map(({ serial }) => serial), rulesId };
}
