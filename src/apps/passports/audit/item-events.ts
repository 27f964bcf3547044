import type { TenantQueries } from '../../../host/timeline.ts';
import { canonical } from '../compile/canonical.ts';
import { hexToBytes, sha256Hex, utf8 } from '../compile/hash.ts';
import type { Hash, Json } from '../compile/types.ts';
import { isSignedBy, type KeyRing } from '../signing/keys.ts';
import type { BrokenLink } from './report.ts';

interface ItemEventRow {
  readonly passportId: string;
  readonly seq: number;
  readonly type: string;
  readonly content: string;
  readonly hash: Hash;
  readonly signingKey: string;
  readonly signature: Buffer;
  readonly occurredAt: Date;
}

const pageSize = 2000;

/** The first event of a battery that was changed, or does not continue the one before it (BPC-11). */
export async function brokenItemEvent(on: TenantQueries, keys: KeyRing): Promise<BrokenLink | null> {
  let last: ItemEventRow | undefined;
  for (;;) {
    const { rows } = await on.query<ItemEventRow>(
      `select e.passport_id as "passportId", e.seq, e.type, e.content, e.hash, e.signing_key as "signingKey", e.signature,
              e.occurred_at as "occurredAt"
         from passports.item_events e
        where e.tenant_id = $1 and ($2::uuid is null or (e.passport_id, e.seq) > ($2, $3))
        order by e.passport_id, e.seq limit $4`,
      [on.tenantId, last?.passportId ?? null, last?.seq ?? 0, pageSize],
    );
    for (const event of rows) {
      const before = last?.passportId === event.passportId ? last : undefined;
      const message = itemEventFault(event, before, keys);
      if (message !== undefined) return { at: `event ${event.seq} of passport:${event.passportId}`, message };
      last = event;
    }
    if (rows.length < pageSize) return null;
  }
}

/** What the audit trail of a passport says of one event. */
interface ToldEvent {
  readonly seq: number;
  readonly event: string;
  readonly hash: Hash;
  readonly key: string | null;
  readonly at: string;
}

/**
 * The same for the events of one battery, against the audit trail of its passport as well: the last event may be the one that
 * is missing. Relies on the primary keys of item_events and audit_events.
 */
export async function brokenEventOf(
  on: TenantQueries,
  passportId: string,
  keys: KeyRing,
): Promise<BrokenLink | null> {
  const { rows } = await on.query<ItemEventRow & { readonly createdAt: string; readonly key: string | null }>(
    `select e.passport_id as "passportId", e.seq, e.type, e.content, e.hash, e.signing_key as "signingKey", e.signature,
            e.occurred_at as "occurredAt", passports.utc(e.created_at) as "createdAt", e.event_key as key
       from passports.item_events e where e.tenant_id = $1 and e.passport_id = $2 order by e.seq`,
    [on.tenantId, passportId],
  );
  const told = await toldEvents(on, passportId);
  const found = new Map(rows.map((row) => [row.seq, row]));
  const numbers = new Set([...told.keys(), ...found.keys()].sort((a, b) => a - b));
  let before: ItemEventRow | undefined;
  for (const seq of numbers) {
    const event = found.get(seq);
    const message = event
      ? (itemEventFault(event, before, keys) ?? untold(event, told.get(seq)))
      : 'it was deleted; the audit trail names it';
    if (message !== undefined) return { at: `event ${seq} of passport:${passportId}`, message };
    before = event;
  }
  return null;
}

/** By number. What cannot be read tells of nothing. */
async function toldEvents(on: TenantQueries, passportId: string): Promise<ReadonlyMap<number, ToldEvent>> {
  const { rows } = await on.query<{ at: string; data: string }>(
    `select e.at, e.data from passports.audit_events e
      where e.tenant_id = $1 and e.aggregate_type = 'passport' and e.aggregate_id = $2 and e.type = 'passport.event_added'
      order by e.seq`,
    [on.tenantId, passportId],
  );
  return new Map(
    rows.flatMap(({ at, data }) => {
      const said = jsonIn(data) as Omit<ToldEvent, 'at'> | undefined;
      return typeof said?.seq === 'number' ? [[said.seq, { ...said, at }] as const] : [];
    }),
  );
}

/** What is not signed with the event is in the audit trail alone. */
function untold(
  event: {
    readonly type: string;
    readonly hash: Hash;
    readonly key: string | null;
    readonly createdAt: string;
  },
  told: ToldEvent | undefined,
): string | undefined {
  if (told === undefined) return 'the audit trail does not name it';
  const isSame =
    told.event === event.type &&
    told.hash === event.hash &&
    told.key === event.key &&
    told.at === event.createdAt;
  return isSame ? undefined : 'it is not what the audit trail says';
}

function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** What is wrong with one event; undefined if it is as it was signed and continues the one before it. */
export function itemEventFault(
  event: ItemEventRow,
  before: Pick<ItemEventRow, 'seq' | 'hash'> | undefined,
  keys: Pick<KeyRing, 'publicKeys'>,
): string | undefined {
  const { passportId, seq, type, content, hash, signingKey, signature, occurredAt } = event;
  if (seq !== (before?.seq ?? 0) + 1) return 'the event before it is missing';
  if (sha256Hex(utf8(content)) !== hash) return 'its content was changed';
  const { data, ...said } = (jsonIn(content) ?? {}) as { readonly data?: Json };
  const expected = {
    occurred_at: occurredAt.toISOString(),
    passport_id: passportId,
    previous: before?.hash ?? null,
    seq,
    type,
    version: 'bpc-item-event-1',
  };
  if (data === undefined || canonical(said) !== canonical(expected))
    return 'its columns do not say what was signed, or it does not continue the event before it';
  const publicKey = keys.publicKeys[signingKey];
  if (!publicKey) return `its public key "${signingKey}" is not known`;
  return isSignedBy(publicKey, hexToBytes(hash) ?? new Uint8Array(), signature)
    ? undefined
    : 'its signature does not verify';
}
