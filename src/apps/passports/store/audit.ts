import type { TenantQueries } from '../../../host/timeline.ts';
import type { Hash, JsonObject } from '../compile/types.ts';

export type AggregateType = 'product' | 'document' | 'snapshot' | 'rules' | 'version' | 'passport' | 'export';

export interface AuditEvent {
  readonly position: string;
  readonly aggregateType: AggregateType;
  readonly aggregateId: string;
  readonly seq: number;
  readonly type: string;
  readonly at: string;
  readonly data: JsonObject;
  readonly previous: Hash;
  readonly hash: Hash;
  /** The head that covers it; null until one does. */
  readonly head: number | null;
}

/** The audit events of one aggregate, in order. */
export async function auditEventsOf(
  on: TenantQueries,
  aggregateType: AggregateType,
  aggregateId: string,
): Promise<readonly AuditEvent[]> {
  const { rows } = await on.query<Omit<AuditEvent, 'data'> & { data: string }>(
    `select e.position, e.aggregate_type as "aggregateType", e.aggregate_id as "aggregateId", e.seq, e.type, e.at, e.data,
            e.previous, e.hash, e.head
       from passports.audit_events e
      where e.tenant_id = $1 and e.aggregate_type = $2 and e.aggregate_id = $3 order by e.seq`,
    [on.tenantId, aggregateType, aggregateId],
  );
  return rows.map((row) => ({ ...row, data: JSON.parse(row.data) as JsonObject }));
}
