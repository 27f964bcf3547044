import { z } from 'zod';
import { given } from '../../../given.ts';
import { operators, readers } from '../../../host/roles.ts';
import { type AnyRoute, pageOf, route } from '../../../host/route.ts';
import { packageIn } from '../rules/look-at.ts';
import { RuleRequests } from '../rules/requests.ts';
import {
  listRulePackages,
  type RuleReport,
  reportsOf,
  requireRulePackage,
  rulePackageStates,
  type StoredRulePackage,
} from '../store/rules.ts';
import {
  publishRulePackage,
  putRulePackage,
  retireRulePackage,
  type TestRules,
  validateRulePackage,
} from '../write/rules.ts';
import type { RouteTools } from './index.ts';
import { byId, hash, pageByUuids, uuid } from './shapes.ts';

const shape = z.object({
  id: uuid,
  name: z.string().describe('`id` in the package'),
  version: z.string(),
  state: z.enum(rulePackageStates),
  hash,
  created_at: z.string(),
  published_at: z.string().nullable(),
});

export const rulePackageJson = (rules: StoredRulePackage) => ({
  id: rules.id,
  name: rules.name,
  version: rules.version,
  state: rules.state,
  hash: rules.hash,
  created_at: rules.createdAt,
  published_at: rules.publishedAt,
});

const problem = z.object({
  code: z.string(),
  rule: z.string().nullable(),
  position: z.object({ line: z.number(), column: z.number(), start: z.number(), end: z.number() }).nullable(),
  message: z.string(),
  path: z.array(z.string()).optional(),
});
const outcome = z.object({
  name: z.string(),
  passed: z.boolean(),
  differences: z.array(z.object({ field: z.string(), expected: z.unknown(), actual: z.unknown() })),
});
const reportShape = z.object({
  build: z.string(),
  passed: z.boolean(),
  outcomes: z.array(outcome),
  created_at: z.string(),
});

export const reportJson = ({ build, passed, outcomes, createdAt }: RuleReport) => ({
  build,
  passed,
  outcomes,
  created_at: createdAt,
});

const body = z.strictObject({
  package: z.record(z.string(), z.unknown()).describe('`id`, `version`, `rules` and `testCases`'),
});

export const ruleRoutes = ({ means, work }: RouteTools): readonly AnyRoute[] => {
  const requests = new RuleRequests();
  const testFor =
    (tenantId: string): TestRules =>
    (stored) =>
      requests.outcomesOf(tenantId, stored);
  const step = (
    verb: string,
    summary: string,
    change: (...args: Parameters<typeof publishRulePackage>) => Promise<unknown>,
  ): AnyRoute =>
    route({
      method: 'POST',
      url: `/v1/passports/rules/:id/${verb}`,
      action: `passport_rules.${verb}`,
      summary,
      roles: operators,
      params: byId,
      response: shape,
      handle: async (call) => {
        await change(work(call), call.params.id, means.build, testFor(call.scope.tenantId));
        return rulePackageJson(await requireRulePackage(call.scope, call.params.id));
      },
    });
  return [
    route({
      method: 'GET',
      url: '/v1/passports/rules',
      action: 'passport_rules.list',
      summary: 'Rule packages, by id',
      roles: readers,
      query: z.strictObject(pageByUuids),
      response: pageOf(shape),
      handle: async ({ scope, query }) => {
        const found = await listRulePackages(scope, given(query));
        return { items: found.items.map(rulePackageJson), next_cursor: found.nextCursor };
      },
    }),
    route({
      method: 'POST',
      url: '/v1/passports/rules',
      action: 'passport_rules.draft',
      summary: 'Store a rule package as a draft, or change a draft',
      roles: operators,
      body,
      status: 201,
      response: shape,
      handle: async (call) => {
        const id = await putRulePackage(work(call), packageIn(call.body.package));
        return rulePackageJson(await requireRulePackage(call.scope, id));
      },
    }),
    route({
      method: 'POST',
      url: '/v1/passports/rules/check',
      action: 'passport_rules.check',
      summary:
        'What is wrong with a rule package, by rule and position, and how its test cases end; stores nothing',
      roles: operators,
      readsOnly: true,
      body,
      response: z.object({ ok: z.boolean(), problems: z.array(problem), outcomes: z.array(outcome) }),
      handle: async ({ body: given, scope }) => requests.lookAt(scope.tenantId, given.package),
    }),
    route({
      method: 'GET',
      url: '/v1/passports/rules/:id',
      action: 'passport_rules.show',
      summary: 'One rule package, with its rules, test cases and reports',
      roles: readers,
      params: byId,
      response: shape.extend({
        package: z.record(z.string(), z.unknown()),
        reports: z.array(reportShape),
      }),
      handle: async ({ scope, params }) => {
        const found = await requireRulePackage(scope, params.id);
        const reports = await reportsOf(scope, found.hash);
        return { ...rulePackageJson(found), package: found.package, reports: reports.map(reportJson) };
      },
    }),
    route({
      method: 'POST',
      url: '/v1/passports/rules/:id/test',
      action: 'passport_rules.test',
      summary: 'Check a draft and run its test cases; it is VALIDATED then, also if cases fail',
      roles: operators,
      params: byId,
      response: reportShape,
      handle: async (call) =>
        reportJson(
          await validateRulePackage(work(call), call.params.id, means.build, testFor(call.scope.tenantId)),
        ),
    }),
    step('publish', 'Publish a rule package; refused while a test case fails', publishRulePackage),
    step('deprecate', 'Mark a published package as deprecated: it still compiles', (on, id) =>
      retireRulePackage(on, id, 'DEPRECATED'),
    ),
    step('retire', 'Retire a deprecated package: it compiles nothing any more', (on, id) =>
      retireRulePackage(on, id, 'RETIRED'),
    ),
  ];
};
