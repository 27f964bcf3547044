import { z } from 'zod';
import { text, timestamp } from '../../../host/route.ts';
import type { TenantQueries } from '../../../host/timeline.ts';
import { requireIssue } from '../issue.ts';
import type { Issue } from '../jobs/kinds.ts';
import type { Means } from '../means.ts';

/** What a request for passports says; the rest is fixed when it is accepted. */
const rules = text(128).describe(
  'The rule package: its UUID, or its name for the one that was published last',
);
const issuedAt = timestamp.optional().describe('When the passport is issued; without it, now');
const withItems = 'Issue the batteries of the model as well, once its own passport is active';

export const issueQuery = {
  rules: rules.optional(),
  issued_at: issuedAt,
  with_items: z.stringbool().optional().describe(withItems),
};

export const issueBody = { rules, issued_at: issuedAt };
export const withItemsBody = z.boolean().default(false).describe(withItems);

export interface IssueRequest {
  readonly rules?: string | undefined;
  readonly issued_at?: Date | undefined;
  readonly with_items?: boolean | undefined;
}

/** Undefined if no rules are named: nothing is to be issued. */
export async function issueFrom(
  on: TenantQueries,
  means: Means,
  { rules: named, issued_at: issuedAt = new Date(), with_items: withItems = false }: IssueRequest,
): Promise<Issue | undefined> {
  return named === undefined ? undefined : requireIssue(on, means, { rules: named, issuedAt, withItems });
}
