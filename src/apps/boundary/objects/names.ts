/** Names of objects, and which facts name them: tables boundary.objects and boundary.holds. */
import type { Queryable } from '../../../engine/database/database.ts';
import type { BufferRole } from '../store/store.ts';

export interface ObjectName {
  readonly tenantId: string;
  readonly bucket: string;
  readonly key: string;
}

export interface ObjectInfo {
  readonly digest: string;
  readonly size: number;
  readonly mediaType: string | undefined;
}

interface Row extends Omit<ObjectInfo, 'mediaType'> {
  readonly mediaType: string | null;
}

/** Relies on objects_pkey. */
export async function find(
  on: Queryable,
  { tenantId, bucket, key }: ObjectName,
): Promise<ObjectInfo | undefined> {
  const { rows } = await on.query<Row>(
    `select digest, size::float8 as size, media_type as "mediaType" from boundary.objects
      where tenant_id = $1 and bucket = $2 and key = $3`,
    [tenantId, bucket, key],
  );
  return rows[0] && { ...rows[0], mediaType: rows[0].mediaType ?? undefined };
}

/**
 * Gives bytes a name, or makes the name that they have new: its grace time begins again. Returns false if the name stands for
 * other bytes. The row is locked until the transaction ends: nobody removes it before.
 */
export async function add(
  on: Queryable,
  { tenantId, bucket, key }: ObjectName,
  { digest, size, mediaType }: ObjectInfo,
): Promise<boolean> {
  const { rowCount } = await on.query(
    `insert into boundary.objects as o (tenant_id, bucket, key, digest, size, media_type)
     values ($1, $2, $3, $4, $5, $6)
     on conflict (tenant_id, bucket, key) do update set stored_at = now() where o.digest = excluded.digest`,
    [tenantId, bucket, key, digest, size, mediaType ?? null],
  );
  return rowCount === 1;
}

/**
 * Held until the transaction ends. Shared by all that give these bytes a name, exclusive for the one that removes them: a
 * removal and a new name never cross.
 */
export async function lockBytes(tx: Queryable, digest: string, how: 'shared' | 'exclusive'): Promise<void> {
  const suffix = how === 'shared' ? '_shared' : '';
  await tx.query(`select pg_advisory_xact_lock${suffix}(hashtextextended($1, 7411))`, [digest]);
}

/** Relies on objects_digest. Across tenants: bytes are stored once for all of them. */
export async function areNamed(tx: Queryable, digest: string): Promise<boolean> {
  const { rows } = await tx.query<{ named: boolean }>(
    'select exists (select 1 from boundary.objects where digest = $1) as named',
    [digest],
  );
  return rows[0]?.named ?? true;
}

/** A fact names an object. */
export interface Hold extends ObjectName {
  readonly digest: string;
  readonly buffer: BufferRole;
  readonly from: string;
  readonly to: string;
  readonly messageId: string;
}

/**
 * Holds the objects that are stored with their digests. Returns for each what is stored under its name; undefined: nothing.
 * Locks the objects' rows in the order of their names, so that two calls cannot deadlock. Relies on objects_pkey, holds_pkey.
 */
export async function hold(on: Queryable, holds: readonly Hold[]): Promise<(string | undefined)[]> {
  const { rows } = await on.query<{ digest: string | null }>(
    `with asked as (
       select * from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
         with ordinality as a (tenant_id, bucket, key, digest, buffer, to_zone, from_zone, message_id, n)
     ), stored as materialized (
       select o.tenant_id, o.bucket, o.key, o.digest from boundary.objects o
        where (o.tenant_id, o.bucket, o.key) in (select a.tenant_id, a.bucket, a.key from asked a)
        order by o.tenant_id, o.bucket, o.key for key share
     ), held as (
       insert into boundary.holds (tenant_id, bucket, key, buffer, to_zone, from_zone, message_id, held_at)
       select distinct a.tenant_id, a.bucket, a.key, a.buffer, a.to_zone, a.from_zone, a.message_id, now()
         from asked a join stored s using (tenant_id, bucket, key, digest)
        order by a.tenant_id, a.bucket, a.key, a.buffer, a.to_zone, a.from_zone, a.message_id
       on conflict (tenant_id, bucket, key, buffer, to_zone, from_zone, message_id) do update set held_at = excluded.held_at
     )
     select s.digest from asked a left join stored s using (tenant_id, bucket, key) order by a.n`,
    [
      holds.map((each) => each.tenantId),
      holds.map((each) => each.bucket),
      holds.map((each) => each.key),
      holds.map((each) => each.digest),
      holds.map((each) => each.buffer),
      holds.map((each) => each.to),
      holds.map((each) => each.from),
      holds.map((each) => each.messageId),
    ],
  );
  return rows.map(({ digest }) => digest ?? undefined);
}

export interface OldHold extends Omit<Hold, 'digest'> {
  readonly heldAt: string;
}

const holdColumns = `tenant_id as "tenantId", bucket, key, buffer, to_zone as "to", from_zone as "from",
  message_id as "messageId", held_at::text as "heldAt"`;

/**
 * Whether a fact names this object: one of a stream that goes to this zone from here, or any at all. Relies on holds_pkey.
 */
export async function isHeld(
  on: Queryable,
  { tenantId, bucket, key }: ObjectName,
  sentTo: string | undefined,
): Promise<boolean> {
  const { rows } = await on.query<{ held: boolean }>(
    `select exists (select 1 from boundary.holds where tenant_id = $1 and bucket = $2 and key = $3
                       and ($4::text is null or (buffer = 'store' and to_zone = $4))) as held`,
    [tenantId, bucket, key, sentTo ?? null],
  );
  return rows[0]?.held ?? false;
}

/** Holds from before a time, after another one in the order of their names. Relies on holds_pkey. */
export async function holdsAfter(
  on: Queryable,
  after: OldHold | undefined,
  { before, limit }: { readonly before: Date; readonly limit: number },
): Promise<OldHold[]> {
  const { rows } = await on.query<OldHold>(
    `select ${holdColumns} from boundary.holds
      where (tenant_id, bucket, key, buffer, to_zone, from_zone, message_id) > ($1, $2, $3, $4, $5, $6, $7) and held_at < $8
      order by tenant_id, bucket, key, buffer, to_zone, from_zone, message_id limit $9`,
    [
      after?.tenantId ?? '',
      after?.bucket ?? '',
      after?.key ?? '',
      after?.buffer ?? '',
      after?.to ?? '',
      after?.from ?? '',
      after?.messageId ?? '',
      before,
      limit,
    ],
  );
  return rows;
}

/** Unless it was renewed. */
export async function release(on: Queryable, hold: OldHold): Promise<void> {
  await on.query(
    `delete from boundary.holds where tenant_id = $1 and bucket = $2 and key = $3 and buffer = $4 and to_zone = $5
        and from_zone = $6 and message_id = $7 and held_at = $8::timestamptz`,
    [hold.tenantId, hold.bucket, hold.key, hold.buffer, hold.to, hold.from, hold.messageId, hold.heldAt],
  );
}

/**
 * Deletes names that no fact holds and that were given before a time. A hold that is written at the same moment has locked
 * the object, which is then skipped; one that was written a moment before makes the foreign key refuse.
 * Relies on objects_stored_at and holds_pkey.
 */
export async function removeOrphans(
  on: Queryable,
  { before, limit }: { readonly before: Date; readonly limit: number },
): Promise<number> {
  const { rowCount } = await on.query(
    `delete from boundary.objects o
      where (o.tenant_id, o.bucket, o.key) in (
        select c.tenant_id, c.bucket, c.key from boundary.objects c
         where c.stored_at < $1
           and not exists (select 1 from boundary.holds h
                            where h.tenant_id = c.tenant_id and h.bucket = c.bucket and h.key = c.key)
         order by c.stored_at limit $2 for update skip locked)`,
    [before, limit],
  );
  return rowCount ?? 0;
}
