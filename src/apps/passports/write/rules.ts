import { leaveTenant, takeTenantRole } from '../../../engine/database/tenant.ts';
import { emit } from '../../../events/emit.ts';
import { appendAudit } from '../audit/append.ts';
import { canonicalAscii } from '../compile/canonical.ts';
import { rulesHash } from '../compile/rules/check.ts';
import type { Json, RulePackage, TestCaseOutcome } from '../compile/types.ts';
import { passportError, rethrow } from '../errors.ts';
import { testNow } from '../rules/test-stored.ts';
import { type FullRulePackage, type RuleReport, requireRulePackage } from '../store/rules.ts';
import type { Work } from '../work.ts';

/** Stores a package as a draft, or replaces the content of a draft. A validated or published one needs a new version. */
export async function putRulePackage({ on, fresh }: Work, rules: RulePackage): Promise<string> {
  const hash = rulesHash(rules);
  const { rows: known } = await on.query<{ hash: string }>(
    'select r.hash from passports.rule_packages r where r.tenant_id = $1 and r.name = $2 and r.version = $3 for update',
    [on.tenantId, rules.id, rules.version],
  );
  const { rows } = await on.query<{ id: string; hash: string }>(
    `insert into passports.rule_packages as r (id, tenant_id, name, version, content, hash) values ($1, $2, $3, $4, $5, $6)
     on conflict (tenant_id, name, version) do update
        set content = case when r.state = 'DRAFT' then excluded.content else r.content end,
            hash = case when r.state = 'DRAFT' then excluded.hash else r.hash end
     returning r.id, r.hash`,
    [
      fresh.id(`rules|${rules.id}|${rules.version}`),
      on.tenantId,
      rules.id,
      rules.version,
      canonicalAscii(rules as unknown as Json),
      hash,
    ],
  );
  const stored = rows[0] as { id: string; hash: string };
  if (stored.hash !== hash)
    throw passportError(
      'VALIDATION_ERROR',
      `rule package ${rules.id} ${rules.version} is no draft any more: give the changed package a new version`,
    );
  if (known[0]?.hash !== hash)
    await appendAudit(on, [
      {
        aggregate: ['rules', stored.id],
        type: 'rules.drafted',
        data: { hash, name: rules.id, version: rules.version },
      },
    ]);
  return stored.id;
}

/** Runs the test cases of a package. A route gives one that does so outside of its transaction. */
export type TestRules = (
  stored: FullRulePackage,
) => readonly TestCaseOutcome[] | Promise<readonly TestCaseOutcome[]>;

/**
 * Checks a draft (types, units, cycles) and runs its test cases. The report is kept; the package is VALIDATED whether cases
 * pass or not: only publishing asks for that.
 *
 * The role of tenants may not write reports (functions/guards.sql): the one who runs the cases does, as the user that
 * connected.
 */
export async function validateRulePackage(
  { on }: Work,
  id: string,
  build: string,
  test: TestRules = testNow,
): Promise<RuleReport> {
  const stored = await requireRulePackage(on, id);
  const outcomes = await test(stored);
  const passed = outcomes.every((outcome) => outcome.passed);
  await keepReport(on, stored, { build, passed, outcomes });
  const { rowCount } = await on.query(
    `update passports.rule_packages r set state = 'VALIDATED' where r.tenant_id = $1 and r.id = $2 and r.state = 'DRAFT'`,
    [on.tenantId, id],
  );
  if (rowCount === 1)
    await appendAudit(on, [
      { aggregate: ['rules', id], type: 'rules.validated', data: { build, hash: stored.hash, passed } },
    ]);
  return { build, passed, outcomes, createdAt: new Date() };
}

async function keepReport(
  on: Work['on'],
  { id, hash }: FullRulePackage,
  { build, passed, outcomes }: Omit<RuleReport, 'createdAt'>,
): Promise<void> {
  await on.query(leaveTenant);
  const { rows } = await on.query<{ digest: string }>(
    `insert into passports.rule_reports (tenant_id, rules_hash, build, outcomes, passed) values ($1, $2, $3, $4, $5)
     on conflict (tenant_id, rules_hash, build) do nothing returning passports.digest(outcomes::text) as digest`,
    [on.tenantId, hash, build, JSON.stringify(outcomes), passed],
  );
  await on.query(takeTenantRole);
  const [added] = rows;
  if (added)
    await appendAudit(on, [
      {
        aggregate: ['rules', id],
        type: 'rules.tested',
        data: { build, hash, outcomes: added.digest, passed },
      },
    ]);
}

/** Publishes a validated package if all its test cases pass. The database refuses it otherwise (functions/guards.sql). */
export async function publishRulePackage(
  work: Work,
  id: string,
  build: string,
  test: TestRules = testNow,
): Promise<void> {
  const { on } = work;
  const report = await validateRulePackage(work, id, build, test);
  const failing = report.outcomes.filter(({ passed }) => !passed);
  if (failing.length > 0)
    throw passportError(
      'RULE_TESTS_FAILED',
      `${failing.length} of ${report.outcomes.length} test cases fail: ${failing.map(({ name }) => name).join(', ')}. ` +
        'Correct the rules or the cases, then publish again',
      { failing },
    );
  const { rows } = await on
    .query<{ name: string; version: string; hash: string }>(
      `update passports.rule_packages r set state = 'PUBLISHED', published_at = now()
        where r.tenant_id = $1 and r.id = $2 and r.state <> 'PUBLISHED' returning r.name, r.version, r.hash`,
      [on.tenantId, id],
    )
    .catch(rethrow);
  const [published] = rows;
  if (!published) return;
  await appendAudit(on, [
    { aggregate: ['rules', id], type: 'rules.published', data: { build, hash: published.hash } },
  ]);
  await emit(on, {
    type: 'rules.version.published',
    aggregateType: 'rules',
    aggregateId: id,
    id: `bpc:published:${id}`,
    tenantId: on.tenantId,
    payload: { id, ...published },
  });
}

/** DEPRECATED still compiles, RETIRED does not. */
export async function retireRulePackage(
  { on }: Work,
  id: string,
  state: 'DEPRECATED' | 'RETIRED',
): Promise<void> {
  await requireRulePackage(on, id);
  const { rowCount } = await on
    .query(
      'update passports.rule_packages r set state = $3 where r.tenant_id = $1 and r.id = $2 and r.state <> $3',
      [on.tenantId, id, state],
    )
    .catch(rethrow);
  if (rowCount === 0) return;
  await appendAudit(on, [{ aggregate: ['rules', id], type: `rules.${state.toLowerCase()}`, data: {} }]);
}
