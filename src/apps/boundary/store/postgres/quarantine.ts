/** Facts that a receiver could not take, and which later facts stand for them. */
import type { Queryable } from '../../../../engine/database/database.ts';
import { emitMany } from '../../../../events/emit.ts';
import type { StandsFor } from '../../domain/record.ts';
import { factQuarantined } from '../../events.ts';
import type {
  BufferRole,
  QuarantinedEntry,
  QuarantinedNote,
  QuarantinedOptions,
  Resolution,
  StreamId,
} from '../store.ts';
import { keyOf, ofStream } from './stream-key.ts';

/** Relies on quarantine_pkey. What is there already stays, and is not told again. */
export async function addQuarantined(
  tx: Queryable,
  tenantId: string,
  entries: readonly QuarantinedEntry[],
): Promise<void> {
  if (entries.length === 0) return;
  const { rows } = await tx.query<{ offset: number }>(
    `insert into boundary.quarantine
       (tenant_id, buffer, from_zone, to_zone, epoch, "offset", message_id, reason, message, record, quarantined_at)
     select $1, e.buffer, e.from_zone, e.to_zone, e.epoch, e."offset", e.message_id, e.reason, e.message, e.record, e.at
       from unnest($2::text[], $3::text[], $4::text[], $5::uuid[], $6::bigint[], $7::text[], $8::text[], $9::text[],
                   $10::text[], $11::timestamptz[])
         as e (buffer, from_zone, to_zone, epoch, "offset", message_id, reason, message, record, at)
     on conflict do nothing returning "offset"::float8 as "offset"`,
    [
      tenantId,
      entries.map((entry) => entry.buffer),
      entries.map((entry) => entry.from),
      entries.map((entry) => entry.to),
      entries.map((entry) => entry.epoch),
      entries.map((entry) => entry.offset),
      entries.map((entry) => entry.messageId),
      entries.map((entry) => entry.reason),
      entries.map((entry) => entry.message),
      entries.map((entry) => entry.text),
      entries.map((entry) => entry.quarantinedAt),
    ],
  );
  const added = new Set(rows.map(({ offset }) => offset));
  await emitMany(
    tx,
    entries.filter(({ offset }) => added.has(offset)).map((entry) => factQuarantined(tenantId, entry)),
  );
}

interface NoteRow extends Omit<QuarantinedNote, 'resolution'> {
  readonly how: Resolution['how'] | null;
  readonly by: number | null;
  readonly at: Date | null;
}

interface Row extends NoteRow, Pick<QuarantinedEntry, 'text'> {}

const noteColumns = `buffer, from_zone as "from", to_zone as "to", epoch, "offset"::float8 as "offset",
  message_id as "messageId", reason, message, quarantined_at as "quarantinedAt",
  resolution as how, resolved_by::float8 as "by", resolved_at as "at"`;

/** No epoch comes behind it. */
const lastEpoch = 'ffffffff-ffff-ffff-ffff-ffffffffffff';

/** Relies on quarantine_pkey. */
export async function quarantined(
  on: Queryable,
  stream: StreamId,
  { after, afterEpoch = lastEpoch, limit, isOpen = false }: QuarantinedOptions,
): Promise<QuarantinedEntry[]> {
  const { rows } = await on.query<Row>(
    `select ${noteColumns}, record as text
       from boundary.quarantine where ${ofStream} and ("offset", epoch) > ($5, $8) and (resolution is null or not $7)
      order by "offset", epoch limit $6`,
    [...keyOf(stream), after, limit, isOpen, afterEpoch],
  );
  return rows.map(resolved);
}

/** Without the records, which may have 1 MiB each. Relies on quarantine_pkey. */
export async function quarantinedNotes(
  on: Queryable,
  stream: StreamId,
  { after, limit }: { readonly after: number; readonly limit: number },
): Promise<QuarantinedNote[]> {
  const { rows } = await on.query<NoteRow>(
    `select ${noteColumns} from boundary.quarantine where ${ofStream} and "offset" > $5
      order by "offset", epoch limit $6`,
    [...keyOf(stream), after, limit],
  );
  return rows.map(resolved);
}

const resolved = <R extends NoteRow>({ how, by, at, ...entry }: R) =>
  how && by !== null && at ? { ...entry, resolution: { how, by, at } } : entry;

/**
 * Removes rows of facts that were taken after all: they were kept before a delivery that failed, and its cause is gone. Relies on
 * quarantine_pkey.
 */
export async function removeTaken(
  tx: Queryable,
  stream: StreamId,
  { epoch, offsets }: { readonly epoch: string; readonly offsets: readonly number[] },
): Promise<void> {
  await tx.query(
    `delete from boundary.quarantine
      where ${ofStream} and epoch = $5 and "offset" = any($6::bigint[]) and resolution is null`,
    [...keyOf(stream), epoch, offsets],
  );
}

/** The first note stays. Relies on quarantine_pkey. */
export async function resolveOne(
  on: Queryable,
  stream: StreamId,
  { epoch, offset }: { readonly epoch: string; readonly offset: number },
  { how, by }: Omit<Resolution, 'at'>,
): Promise<void> {
  await on.query(
    `update boundary.quarantine set resolution = $7, resolved_by = $8, resolved_at = clock_timestamp()
      where ${ofStream} and "offset" = $5 and epoch = $6 and resolution is null`,
    [...keyOf(stream), offset, epoch, how, by],
  );
}

/**
 * In the zone that could not take it: the fact that stands for it came through. So are attempts in between that were refused
 * in their turn. Relies on quarantine_pkey; few are open.
 */
export async function resolveByStandIn(
  on: Queryable,
  stream: StreamId,
  { epoch, offset, messageId, isDropped }: StandsFor,
  by: number,
): Promise<void> {
  await on.query(
    `update boundary.quarantine set resolution = $7, resolved_by = $8, resolved_at = clock_timestamp()
      where ${ofStream} and resolution is null
        and ("offset" = $5 and epoch::text = $6 and message_id = $9
             or record::json -> 'standsFor' ->> 'offset' = $5::text
                and record::json -> 'standsFor' ->> 'epoch' = $6)`,
    [...keyOf(stream), offset, epoch, isDropped ? 'dropped' : 'redriven', by, messageId],
  );
}

/** The record of a fact whose content came with a later one. Relies on quarantine_pkey. */
export async function redrivenText(
  on: Queryable,
  stream: StreamId,
  { epoch, offset, messageId }: StandsFor,
): Promise<string | undefined> {
  const { rows } = await on.query<{ text: string }>(
    `select record as text from boundary.quarantine
      where ${ofStream} and "offset" = $5 and epoch::text = $6 and message_id = $7 and resolution = 'redriven'`,
    [...keyOf(stream), offset, epoch, messageId],
  );
  return rows[0]?.text;
}

/** Relies on quarantine_open. */
export async function isInQuarantine(
  on: Queryable,
  {
    tenantId,
    buffer,
    from,
  }: { readonly tenantId: string; readonly buffer: BufferRole; readonly from: string },
  messageId: string,
): Promise<boolean> {
  const { rows } = await on.query<{ open: boolean }>(
    `select exists (select 1 from boundary.quarantine
                     where tenant_id = $1 and buffer = $2 and from_zone = $3 and message_id = $4
                       and resolution is null) as open`,
    [tenantId, buffer, from, messageId],
  );
  return rows[0]?.open ?? false;
}
