import type { TenantQueries } from '../../../host/timeline.ts';
import { canonical } from '../compile/canonical.ts';
import type { JsonObject } from '../compile/types.ts';
import type { AggregateType } from '../store/audit.ts';

export interface NewAuditEvent {
  readonly aggregate: readonly [AggregateType, string];
  readonly type: string;
  readonly data: JsonObject;
}

/**
 * Appends to the chains of aggregates, in the transaction that causes the events. Of each aggregate at most one event a
 * call. Throws EVENT_VERSION_CONFLICT (23505, see errors.ts) if another transaction was faster.
 */
export async function appendAudit(on: TenantQueries, events: readonly NewAuditEvent[]): Promise<void> {
  if (events.length === 0) return;
  await on.query('select passports.append_audit($1, $2, $3, $4, $5)', [
    on.tenantId,
    events.map(({ aggregate: [type] }) => type),
    events.map(({ aggregate: [, id] }) => id),
    events.map(({ type }) => type),
    events.map(({ data }) => canonical(data)),
  ]);
}
