import type { TenantQueries } from '../../../host/timeline.ts';
import { canonical, hashJson } from '../compile/canonical.ts';
import { hexToBytes } from '../compile/hash.ts';
import type { Hash, Json } from '../compile/types.ts';
import { type KeyRing, requireCurrentKey } from '../signing/keys.ts';

export const noHash: Hash = '0'.repeat(64);

/** Events that one head covers at most. */
const mostLeaves = 5000;

/** [aggregate type, aggregate id, seq, hash] of an audit event. */
export type Leaf = readonly [string, string, number, Hash];

export const headHash = (head: {
  readonly tenant: string;
  readonly number: number;
  readonly at: string;
  readonly previous: Hash;
  readonly leaves: readonly Leaf[];
}): Hash => hashJson({ version: 'bpc-audit-head-1', ...head } as unknown as Json);

/**
 * Puts a signed head over the audit events that none covers yet, in the transaction of `on`, and returns how many it
 * covers. Events of transactions that are still open are covered by a later head: what is not covered yet is protected by
 * the chain of its own aggregate alone.
 */
export async function extendHead(on: TenantQueries, keys: KeyRing): Promise<number> {
  const keyId = requireCurrentKey(keys);
  // One head at a time for each tenant; the primary key would refuse a second one.
  await on.query(`select pg_advisory_xact_lock(hashtextextended('passports.audit_heads|' || $1, 0))`, [
    on.tenantId,
  ]);
  const { rows: events } = await on.query<{ type: string; id: string; seq: number; hash: Hash }>(
    `select e.aggregate_type as type, e.aggregate_id as id, e.seq, e.hash from passports.audit_events e
      where e.tenant_id = $1 and e.head is null order by e.position limit $2`,
    [on.tenantId, mostLeaves],
  );
  if (events.length === 0) return 0;
  const { rows: last } = await on.query<{ number: number; hash: Hash; at: string }>(
    `select coalesce(max(h.number), 0) as number, (array_agg(h.hash order by h.number desc))[1] as hash,
            to_char(now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as at
       from passports.audit_heads h where h.tenant_id = $1`,
    [on.tenantId],
  );
  const { number: before = 0, hash: previous, at = '' } = last[0] ?? {};
  const leaves = events.map(({ type, id, seq, hash }): Leaf => [type, id, seq, hash]);
  const head = { tenant: on.tenantId, number: before + 1, at, previous: previous ?? noHash, leaves };
  const hash = headHash(head);
  const signature = keys.sign(keyId, hexToBytes(hash) ?? new Uint8Array());
  await on.query(
    `insert into passports.audit_heads (tenant_id, number, at, leaves, previous, hash, signing_key, signature)
     values ($1, $2, $3, $4, $5, $6, $7, $8)`,
    [
      on.tenantId,
      head.number,
      at,
      canonical(leaves as unknown as Json),
      head.previous,
      hash,
      keyId,
      Buffer.from(signature),
    ],
  );
  await on.query(
    `update passports.audit_events e set head = $2
       from unnest($3::text[], $4::text[], $5::int[]) as u (type, id, seq)
      where e.tenant_id = $1 and e.aggregate_type = u.type and e.aggregate_id = u.id and e.seq = u.seq`,
    [
      on.tenantId,
      head.number,
      events.map(({ type }) => type),
      events.map(({ id }) => id),
      events.map(({ seq }) => seq),
    ],
  );
  return events.length;
}
