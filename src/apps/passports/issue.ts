import type { TenantQueries } from '../../host/timeline.ts';
import type { Issue } from './jobs/kinds.ts';
import type { Means } from './means.ts';
import { requireRulePackage, requireRulePackageNamed } from './store/rules.ts';
import { newIssue } from './write/issue.ts';

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** What is fixed for a compile; `rules` is the id of a package, or its name for the one that was published last. */
export async function requireIssue(
  on: TenantQueries,
  means: Means,
  request: { readonly rules: string; readonly issuedAt: Date; readonly withItems: boolean },
): Promise<Issue> {
  const { id } = uuid.test(request.rules)
    ? await requireRulePackage(on, request.rules)
    : await requireRulePackageNamed(on, request.rules);
  return newIssue(means, { rulesId: id, issuedAt: request.issuedAt, withItems: request.withItems });
}
