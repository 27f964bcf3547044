import { requireText } from '../../../engine/validate.ts';
import { appendAudit } from '../audit/append.ts';
import { canonical } from '../compile/canonical.ts';
import { hexToBytes, sha256Hex, utf8 } from '../compile/hash.ts';
import type { JsonObject } from '../compile/types.ts';
import { asPassportError, notFound, passportError } from '../errors.ts';
import { type KeyRing, requireCurrentKey } from '../signing/keys.ts';
import type { Work } from '../work.ts';

export interface NewItemEvent {
  /** Such as `state_of_health`, `cycles`, `accident`. */
  readonly type: string;
  readonly occurredAt: Date;
  readonly data: JsonObject;
  /** The same key again adds nothing. */
  readonly key?: string;
}

/** Readers of a passport get its newest 200 events at once: with this limit they fit into a page. */
const mostDataBytes = 16 * 1024;

/**
 * Appends individual data of a battery: signed, chained to the event before it, never changed. Returns its number. The audit
 * trail of the passport names each event by number and hash, so that a cut tail shows.
 */
export async function appendItemEvent(
  { on }: Work,
  keys: KeyRing,
  passportId: string,
  { type, occurredAt, data, key }: NewItemEvent,
): Promise<number> {
  requireText(type, 'the type of an item event', 64);
  requireSmall(data);
  const signingKey = requireCurrentKey(keys);
  // One writer at a time for each battery: the next event continues the one before it.
  const { rows: items } = await on.query<{ ceased: boolean }>(
    `select i.ceased_at is not null as ceased from passports.items i
      where i.tenant_id = $1 and i.passport_id = $2 for no key update`,
    [on.tenantId, passportId],
  );
  const [item] = items;
  if (!item) throw notFound('battery', passportId);
  const { rows: known } = await on.query<{ seq: number }>(
    'select e.seq from passports.item_events e where e.tenant_id = $1 and e.passport_id = $2 and e.event_key = $3',
    [on.tenantId, passportId, key ?? null],
  );
  if (known[0]) return known[0].seq;
  if (item.ceased)
    throw passportError(
      'PASSPORT_CEASED',
      `the passport ${passportId} has ceased: its battery gets no more data`,
    );
  const { rows } = await on.query<{ seq: number; hash: string }>(
    `select e.seq, e.hash from passports.item_events e
      where e.tenant_id = $1 and e.passport_id = $2 order by e.seq desc limit 1`,
    [on.tenantId, passportId],
  );
  const [last] = rows;
  const seq = (last?.seq ?? 0) + 1;
  const content = canonical({
    data,
    occurred_at: occurredAt.toISOString(),
    passport_id: passportId,
    previous: last?.hash ?? null,
    seq,
    type,
    version: 'bpc-item-event-1',
  });
  const hash = sha256Hex(utf8(content));
  const signature = keys.sign(signingKey, hexToBytes(hash) ?? new Uint8Array());
  try {
    await on.query(
      `insert into passports.item_events
         (passport_id, seq, tenant_id, type, content, hash, signing_key, signature, occurred_at, event_key)
       values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)`,
      [
        passportId,
        seq,
        on.tenantId,
        type,
        content,
        hash,
        signingKey,
        Buffer.from(signature),
        occurredAt,
        key ?? null,
      ],
    );
    await appendAudit(on, [
      {
        aggregate: ['passport', passportId],
        type: 'passport.event_added',
        data: { event: type, hash, key: key ?? null, seq },
      },
    ]);
  } catch (error) {
    throw asPassportError(error);
  }
  return seq;
}

function requireSmall(data: JsonObject): void {
  const bytes = utf8(canonical(data)).length;
  if (bytes > mostDataBytes)
    throw passportError(
      'VALIDATION_ERROR',
      `the data of an item event has ${bytes} bytes of JSON; at most ${mostDataBytes} (16 KiB) are allowed: send it as several events`,
    );
}
