import { expect, test } from 'vitest';
import { rulePackage } from '../../../src/apps/passports/compile/sample/index.ts';
import type { RulePackage } from '../../../src/apps/passports/compile/types.ts';
import { listVersions } from '../../../src/apps/passports/store/index.ts';
import { newIssue } from '../../../src/apps/passports/write/issue.ts';
import {
  publishRulePackage,
  putRulePackage,
  validateRulePackage,
} from '../../../src/apps/passports/write/rules.ts';
import { requestModelVersion } from '../../../src/apps/passports/write/versions.ts';
import { drained } from '../../support/engine.ts';
import { issuedAt, type PassportBundle, passports, putSample, runChain } from './support.ts';

/** The sample's package with a case that cannot pass. */
function failing(version: string): RulePackage {
  const [first, ...others] = rulePackage.testCases;
  if (!first) throw new Error('the sample has no test case');
  const [field = ''] = Object.keys(first.expect);
  const expectation = { ...first.expect, [field]: { status: 'value' as const, value: 'never' } };
  return { ...rulePackage, version, testCases: [{ ...first, expect: expectation }, ...others] };
}

const published = ({ on }: PassportBundle, version: string) =>
  on
    .query(`select 1 from passports.rule_packages where version = $1 and state = 'PUBLISHED'`, [version])
    .then(({ rows }) => rows.length > 0);

test('BPC-6: a package with a failing case is not published through the API', async () => {
  const bundle = await passports();
  const { change, means } = bundle;
  const id = await change((work) => putRulePackage(work, failing('9.0.0')));
  await expect(change((work) => publishRulePackage(work, id, means.build))).rejects.toMatchObject({
    code: 'RULE_TESTS_FAILED',
  });
  const report = await change((work) => validateRulePackage(work, id, means.build));
  expect(report.passed).toBe(false);
  await expect(change((work) => publishRulePackage(work, id, means.build))).rejects.toMatchObject({
    code: 'RULE_TESTS_FAILED',
  });
  expect(await published(bundle, '9.0.0')).toBe(false);
});

test('BPC-6: nor by SQL: cases never run, none at all, changed after they were run, or a report that a tenant made up', async () => {
  const bundle = await passports();
  const { change, on, means } = bundle;
  const toState = (id: string, state: string) =>
    on.query(`update passports.rule_packages set state = '${state}' where id = $1`, [id]);

  const untested = await change((work) => putRulePackage(work, { ...rulePackage, version: '9.0.1' }));
  await expect(toState(untested, 'PUBLISHED')).rejects.toThrow(/RULE_PKG_NOT_PUBLISHED/);
  await toState(untested, 'VALIDATED');
  await expect(toState(untested, 'PUBLISHED')).rejects.toThrow(/RULE_TESTS_FAILED/);

  const empty = await change((work) =>
    putRulePackage(work, { ...rulePackage, version: '9.0.2', testCases: [] }),
  );
  await expect(change((work) => publishRulePackage(work, empty, means.build))).rejects.toMatchObject({
    code: 'RULE_TESTS_FAILED',
  });

  const passing = await change((work) => putRulePackage(work, { ...rulePackage, version: '9.0.3' }));
  await change((work) => validateRulePackage(work, passing, means.build));
  const replacement = (id: string) =>
    on.query(
      `update passports.rule_packages set content = n.content, hash = n.hash
         from (select content, hash from passports.rule_packages where version = '9.0.4') n where id = $1`,
      [id],
    );
  await change((work) => putRulePackage(work, failing('9.0.4')));
  await expect(replacement(passing)).rejects.toThrow(/publish a new version/);
  await toState(passing, 'DRAFT');
  await replacement(passing);
  await toState(passing, 'VALIDATED');
  await expect(toState(passing, 'PUBLISHED')).rejects.toThrow(/RULE_TESTS_FAILED/);

  await expect(
    on.query(
      `insert into passports.rule_reports (tenant_id, rules_hash, build, outcomes, passed)
       select tenant_id, hash, 'forged',
              (select jsonb_agg(jsonb_build_object('name', c ->> 'name', 'passed', true)) from jsonb_array_elements(content::jsonb -> 'testCases') c),
              true from passports.rule_packages where version = '9.0.4'`,
    ),
  ).rejects.toThrow(/RULE_TESTS_FAILED/);
  await expect(
    on.query(
      `insert into passports.rule_packages (id, tenant_id, name, version, state, content, hash)
       select gen_random_uuid(), tenant_id, name, '9.0.5', 'PUBLISHED', content, hash from passports.rule_packages where version = '9.0.4'`,
    ),
  ).rejects.toThrow(/begins as DRAFT/);
  for (const version of ['9.0.1', '9.0.2', '9.0.3', '9.0.4', '9.0.5'])
    expect(await published(bundle, version), version).toBe(false);
});

test('BPC-6: a package that the owner of the database published by force, with a forged report, compiles nothing', async () => {
  const bundle = await passports();
  const { change, means, on, rows } = bundle;
  await change((work) => putSample(work, means, 0));
  await runChain(bundle);
  await drained(bundle);
  const rulesId = await change((work) => putRulePackage(work, failing('9.0.6')));
  await rows(`insert into passports.rule_reports (tenant_id, rules_hash, build, outcomes, passed)
    select tenant_id, hash, 'forged',
           (select jsonb_agg(jsonb_build_object('name', c ->> 'name', 'passed', true) order by n)
              from jsonb_array_elements(content::jsonb -> 'testCases') with ordinality as c (c, n)), true
      from passports.rule_packages where version = '9.0.6'`);
  await rows(`update passports.rule_packages set state = 'VALIDATED' where version = '9.0.6'`);
  await rows(`update passports.rule_packages set state = 'PUBLISHED' where version = '9.0.6'`);
  const issue = newIssue(means, { rulesId, issuedAt: new Date(issuedAt.getTime() + 1000) });
  const id = await change((work) => requestModelVersion(work, 'pack-100-nmc811', issue));
  await drained(bundle);
  const { items } = await listVersions(on);
  expect(items.find((version) => version.id === id)).toMatchObject({
    state: 'COMPILING',
    receiptHash: null,
    error: { code: 'RULE_TESTS_FAILED' },
  });
});
