import type { Page, PageRequest } from '../../../engine/paging.ts';
import type { TenantQueries } from '../../../host/timeline.ts';
import type { Hash, RulePackage, TestCaseOutcome } from '../compile/types.ts';
import { notFound } from '../errors.ts';
import { textPage, textPageOf } from './page.ts';

export const rulePackageStates = ['DRAFT', 'VALIDATED', 'PUBLISHED', 'DEPRECATED', 'RETIRED'] as const;
export type RulePackageState = (typeof rulePackageStates)[number];

export interface StoredRulePackage {
  readonly id: string;
  /** `id` of the package itself. */
  readonly name: string;
  readonly version: string;
  readonly state: RulePackageState;
  readonly hash: Hash;
  readonly createdAt: Date;
  readonly publishedAt: Date | null;
}

/** With the package itself. `content` is its canonical JSON, whose SHA-256 is `hash`. */
export interface FullRulePackage extends StoredRulePackage {
  readonly content: string;
  readonly package: RulePackage;
}

export interface RuleReport {
  readonly build: string;
  readonly passed: boolean;
  readonly outcomes: readonly TestCaseOutcome[];
  readonly createdAt: Date;
}

const columns = `r.id, r.name, r.version, r.state, r.hash, r.created_at as "createdAt", r.published_at as "publishedAt"`;

const full = (row: StoredRulePackage & { readonly content: string }): FullRulePackage => ({
  ...row,
  package: JSON.parse(row.content) as RulePackage,
});

export async function requireRulePackage(on: TenantQueries, id: string): Promise<FullRulePackage> {
  const { rows } = await on.query<StoredRulePackage & { content: string }>(
    `select ${columns}, r.content from passports.rule_packages r where r.tenant_id = $1 and r.id = $2`,
    [on.tenantId, id],
  );
  if (!rows[0]) throw notFound('rule package', id);
  return full(rows[0]);
}

/** By the package's own id and version; without a version the one that was published last. */
export async function requireRulePackageNamed(
  on: TenantQueries,
  name: string,
  version?: string,
): Promise<FullRulePackage> {
  const { rows } = await on.query<StoredRulePackage & { content: string }>(
    `select ${columns}, r.content from passports.rule_packages r
      where r.tenant_id = $1 and r.name = $2 and (r.version = $3 or ($3::text is null and r.state = 'PUBLISHED'))
      order by r.published_at desc nulls last limit 1`,
    [on.tenantId, name, version ?? null],
  );
  if (!rows[0])
    throw notFound(
      version === undefined ? 'published rule package' : 'rule package',
      `${name} ${version ?? ''}`.trim(),
    );
  return full(rows[0]);
}

export async function listRulePackages(
  on: TenantQueries,
  page: PageRequest = {},
): Promise<Page<StoredRulePackage>> {
  const { size, fetch, cursor } = textPage(page);
  const { rows } = await on.query<StoredRulePackage>(
    `select ${columns} from passports.rule_packages r
      where r.tenant_id = $1 and ($2 = '' or r.id > nullif($2, '')::uuid) order by r.id limit $3`,
    [on.tenantId, cursor, fetch],
  );
  return textPageOf(rows, size, ({ id }) => id);
}

/** Outcomes of the test cases for exactly this content, newest first. */
export async function reportsOf(on: TenantQueries, rulesHash: Hash): Promise<readonly RuleReport[]> {
  const { rows } = await on.query<RuleReport>(
    `select r.build, r.passed, r.outcomes, r.created_at as "createdAt" from passports.rule_reports r
      where r.tenant_id = $1 and r.rules_hash = $2 order by r.created_at desc`,
    [on.tenantId, rulesHash],
  );
  return rows;
}
