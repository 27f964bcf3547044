import type { TenantQueries } from '../../../host/timeline.ts';
import { sha256Hex, utf8 } from '../compile/hash.ts';
import type { Hash } from '../compile/types.ts';
import { noHash } from './head.ts';
import type { BrokenLink } from './report.ts';

interface EventRow {
  readonly type: string;
  readonly id: string;
  readonly seq: number;
  readonly event: string;
  readonly at: string;
  readonly data: string;
  readonly previous: Hash;
  readonly hash: Hash;
}

const pageSize = 5000;

/** The first event that does not continue the chain of its aggregate. Page by page: a tenant has millions of events. */
export async function brokenChain(on: TenantQueries): Promise<BrokenLink | null> {
  let last: EventRow | undefined;
  for (;;) {
    // Relies on the primary key of audit_events.
    const { rows } = await on.query<EventRow>(
      `select e.aggregate_type as type, e.aggregate_id as id, e.seq, e.type as event, e.at, e.data, e.previous, e.hash
         from passports.audit_events e
        where e.tenant_id = $1 and (e.aggregate_type, e.aggregate_id, e.seq) > ($2, $3, $4)
        order by e.aggregate_type, e.aggregate_id, e.seq limit $5`,
      [on.tenantId, last?.type ?? '', last?.id ?? '', last?.seq ?? 0, pageSize],
    );
    for (const event of rows) {
      const broken = brokenLink(event, last);
      if (broken) return broken;
      last = event;
    }
    if (rows.length < pageSize) return null;
  }
}

function brokenLink(event: EventRow, last: EventRow | undefined): BrokenLink | null {
  const before = last && last.type === event.type && last.id === event.id ? last : undefined;
  const { type, id, seq, at, data, previous, hash } = event;
  const name = `${type}:${id}#${seq}`;
  if (seq !== (before?.seq ?? 0) + 1)
    return { at: name, message: `event ${(before?.seq ?? 0) + 1} of ${type}:${id} is missing` };
  if (previous !== (before?.hash ?? noHash))
    return { at: name, message: 'it does not continue the event before it' };
  const lines = [previous, type, id, String(seq), event.event, at, data].join('\n');
  if (sha256Hex(utf8(lines)) !== hash) return { at: name, message: 'its content was changed' };
  return null;
}
