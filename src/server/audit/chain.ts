import { createHmac, type Hmac } from 'node:crypto';
import type { Queryable } from '../../engine/database/database.ts';
import type { SecretBox } from '../../secrets/box.ts';

/** A seal over the events above the last id of the seal before, up to its own. */
export interface Seal {
  readonly seq: string;
  readonly lastId: string;
  readonly events: number;
  /** The master secret that the hashes are keyed with. */
  readonly keyId: string;
  readonly digest: Buffer;
  readonly hash: Buffer;
  readonly sealedAt: Date;
  /** Set when retention has deleted the events. */
  readonly pruned: Buffer | null;
}

/** What is before the first seal. */
export const beginning = { seq: '0', lastId: '-9223372036854775808', hash: Buffer.alloc(32) } as const;

/** Every column, as text, so that nothing is lost between PostgreSQL's types and ours. */
const eventsBetween = `
  select id::text as id,
         array[tenant_id, to_char(at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US'), actor, action, resource, outcome,
               status::text, code, correlation_id, address, times::text] as columns
    from tallyman_server.audit_events where id > $1::bigint and id <= $2::bigint order by id limit $3`;

const atOnce = 5_000;

/** Computes seals under keys that are not in the database. */
export class AuditChain {
  readonly #keys: ReadonlyMap<string, Buffer>;
  /** New seals are made under it. */
  readonly keyId: string;

  constructor(box: SecretBox) {
    this.#keys = new Map(box.keyIds.map((id) => [id, box.derive('audit', id)]));
    this.keyId = box.keyId;
  }

  knows(keyId: string): boolean {
    return this.#keys.has(keyId);
  }

  /** Over the events with ids above `after`, up to `lastId`. */
  async digest(
    on: Queryable,
    { after, lastId, keyId }: { readonly after: string; readonly lastId: string; readonly keyId: string },
  ): Promise<{ readonly events: number; readonly digest: Buffer }> {
    const hmac = this.#hmac(keyId, 'events');
    let events = 0;
    for (let from = after; ; ) {
      const { rows } = await on.query<{ id: string; columns: (string | null)[] }>(eventsBetween, [
        from,
        lastId,
        atOnce,
      ]);
      for (const { id, columns } of rows) hmac.update(`${JSON.stringify([id, ...columns])}\n`);
      events += rows.length;
      const last = rows.at(-1);
      if (!last || rows.length < atOnce) return { events, digest: hmac.digest() };
      from = last.id;
    }
  }

  /** Over a seal's own fields and the hash of the seal before. */
  hash(
    { seq, lastId, events, keyId, digest, sealedAt }: Omit<Seal, 'hash' | 'pruned'>,
    before: Buffer,
  ): Buffer {
    const fields = [
      seq,
      lastId,
      events,
      digest.toString('hex'),
      sealedAt.toISOString(),
      before.toString('hex'),
    ];
    return this.#hmac(keyId, 'seal').update(JSON.stringify(fields)).digest();
  }

  /** Says that it was retention that deleted the events of this seal. */
  pruned({ seq, keyId, hash }: Pick<Seal, 'seq' | 'keyId' | 'hash'>): Buffer {
    return this.#hmac(keyId, 'pruned')
      .update(`${seq} ${hash.toString('hex')}`)
      .digest();
  }

  #hmac(keyId: string, use: string): Hmac {
    return createHmac('sha256', this.#keys.get(keyId) ?? '').update(`tallyman audit ${use} 1\n`);
  }
}

const sealColumns = `
  seq::text as seq, last_id::text as "lastId", events, key_id as "keyId", digest, hash,
  sealed_at as "sealedAt", pruned`;

export async function lastSeal(on: Queryable): Promise<Seal | undefined> {
  const { rows } = await on.query<Seal>(
    `select ${sealColumns} from tallyman_server.audit_seals order by seq desc limit 1`,
  );
  return rows[0];
}

/** The oldest seal whose events are kept. */
export async function firstKeptSeal(on: Queryable): Promise<Seal | undefined> {
  const { rows } = await on.query<Seal>(
    `select ${sealColumns} from tallyman_server.audit_seals where pruned is null order by seq limit 1`,
  );
  return rows[0];
}

export async function sealsAfter(on: Queryable, seq: string, limit: number): Promise<Seal[]> {
  const { rows } = await on.query<Seal>(
    `select ${sealColumns} from tallyman_server.audit_seals where seq > $1::bigint order by seq limit $2`,
    [seq, limit],
  );
  return rows;
}
