import type { TenantQueries } from '../../../host/timeline.ts';
import type { KeyRing } from '../signing/keys.ts';
import { brokenChain } from './chains.ts';
import { brokenHead } from './heads.ts';
import { brokenItemEvent } from './item-events.ts';
import type { AuditReport, KnownHead } from './report.ts';
import { brokenRow } from './rows.ts';

export type { AuditReport, BrokenLink, KnownHead } from './report.ts';

/**
 * Checks everything that is stored for a tenant against its audit trail (BPC-14), and names the first thing that does not
 * fit: the chain of every aggregate, the signed heads over them, the rows that the events tell of, and the signed events of
 * batteries. What a version was compiled to is checked by replay (replay.ts).
 *
 * Run it in one transaction with `repeatable read` while others write: the parts are read one after another.
 */
export async function verifyAudit(
  on: TenantQueries,
  keys: KeyRing,
  { known }: { readonly known?: KnownHead } = {},
): Promise<AuditReport> {
  const { rows } = await on.query<{ events: number; uncovered: number; heads: number; hash: string | null }>(
    `select (select count(*)::int from passports.audit_events e where e.tenant_id = $1) as events,
            (select count(*)::int from passports.audit_events e where e.tenant_id = $1 and e.head is null) as uncovered,
            (select count(*)::int from passports.audit_heads h where h.tenant_id = $1) as heads,
            (select h.hash from passports.audit_heads h where h.tenant_id = $1 order by h.number desc limit 1) as hash`,
    [on.tenantId],
  );
  const { events = 0, uncovered = 0, heads = 0, hash = null } = rows[0] ?? {};
  const broken =
    (await brokenChain(on)) ??
    (await brokenHead(on, keys, known)) ??
    (await brokenRow(on)) ??
    (await brokenItemEvent(on, keys));
  return { events, heads, uncovered, head: hash === null ? null : { number: heads, hash }, broken };
}
