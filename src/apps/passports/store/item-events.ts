import type { TenantQueries } from '../../../host/timeline.ts';
import type { Hash, JsonObject } from '../compile/types.ts';

/** Individual data of one battery (access point 4): state of health, cycles, accidents. Signed and append-only. */
export interface ItemEvent {
  readonly passportId: string;
  readonly seq: number;
  readonly type: string;
  readonly occurredAt: Date;
  readonly data: JsonObject;
  /** Canonical JSON of everything that is signed. */
  readonly content: string;
  readonly hash: Hash;
  readonly signingKey: string;
  readonly signature: Uint8Array;
  readonly createdAt: Date;
}

/** Newest first. */
export async function itemEventsOf(
  on: TenantQueries,
  passportId: string,
  { limit = 50, before }: { readonly limit?: number; readonly before?: number } = {},
): Promise<readonly ItemEvent[]> {
  const { rows } = await on.query<Omit<ItemEvent, 'data'>>(
    `select e.passport_id as "passportId", e.seq, e.type, e.occurred_at as "occurredAt", e.content, e.hash,
            e.signing_key as "signingKey", e.signature, e.created_at as "createdAt"
       from passports.item_events e
      where e.tenant_id = $1 and e.passport_id = $2 and ($3::int is null or e.seq < $3) order by e.seq desc limit $4`,
    [on.tenantId, passportId, before ?? null, limit],
  );
  return rows.map((row) => ({ ...row, data: (JSON.parse(row.content) as { data: JsonObject }).data }));
}
