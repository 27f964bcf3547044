/** Cursors of consumers. All statements rely on consumers_pkey. */
import type { Queryable } from '../../../../engine/database/database.ts';
import { streamName } from '../../domain/delivery.ts';
import { BoundaryError } from '../../domain/errors.ts';
import type { ConsumerState, StreamId } from '../store.ts';
import { keyOf, ofStream } from './stream-key.ts';

interface Row extends Omit<ConsumerState, 'confirmedAt'> {
  readonly confirmedAt: Date | null;
}

const columns = `name, cursor::float8 as cursor, fetched::float8 as fetched, instance, generation, leased_until as "leasedUntil",
  created_at as "createdAt", confirmed_at as "confirmedAt"`;

const toState = ({ confirmedAt, ...row }: Row): ConsumerState => ({
  ...row,
  confirmedAt: confirmedAt ?? undefined,
});

/**
 * Renews the lease of the instance, or takes over one that has run out; what the instance before had fetched counts no
 * more. Undefined: there is no such consumer.
 */
export async function lease(
  on: Queryable,
  stream: StreamId,
  name: string,
  { instance, leaseMs }: { readonly instance: string; readonly leaseMs: number },
): Promise<ConsumerState | undefined> {
  const { rows } = await on.query<Row>(
    `update boundary.consumers
        set fetched = case when instance = $6 then fetched else cursor end,
            generation = case when instance = $6 then generation else generation + 1 end, instance = $6,
            leased_until = greatest(case when instance = $6 then leased_until end,
                                    clock_timestamp() + $7 * interval '1 ms')
      where ${ofStream} and name = $5 and (instance = $6 or leased_until < clock_timestamp())
      returning ${columns}`,
    [...keyOf(stream), name, instance, leaseMs],
  );
  if (rows[0]) return toState(rows[0]);
  const other = await find(on, stream, name);
  if (!other) return undefined;
  throw new BoundaryError(
    'FAILED_PRECONDITION',
    'consumer_in_use',
    `consumer "${name}" of ${streamName(stream)} is in use by instance "${other.instance}" until ` +
      `${other.leasedUntil.toISOString()} at least; stop it, or use another consumer name`,
  );
}

/** Nothing happens if it is there. */
export async function create(
  on: Queryable,
  stream: StreamId,
  name: string,
  cursor: number,
  { instance, leaseMs }: { readonly instance: string; readonly leaseMs: number },
): Promise<void> {
  await on.query(
    `insert into boundary.consumers
       (tenant_id, buffer, from_zone, to_zone, name, cursor, fetched, instance, leased_until)
     values ($1, $2, $3, $4, $5, $6, $6, $7, clock_timestamp() + $8 * interval '1 ms')
     on conflict do nothing`,
    [...keyOf(stream), name, cursor, instance, leaseMs],
  );
}

export async function noteFetched(
  on: Queryable,
  stream: StreamId,
  { name, generation }: ConsumerState,
  offset: number,
): Promise<boolean> {
  const { rowCount } = await on.query(
    `update boundary.consumers set fetched = greatest(fetched, $7)
      where ${ofStream} and name = $5 and generation = $6`,
    [...keyOf(stream), name, generation, offset],
  );
  return (rowCount ?? 0) > 0;
}

export async function confirm(
  on: Queryable,
  stream: StreamId,
  name: string,
  instance: string,
  offset: number,
): Promise<number> {
  const { rows } = await on.query<{ cursor: number }>(
    `update boundary.consumers set cursor = greatest(cursor, $7), confirmed_at = clock_timestamp()
      where ${ofStream} and name = $5 and instance = $6 and fetched >= $7
      returning cursor::float8 as cursor`,
    [...keyOf(stream), name, instance, offset],
  );
  if (rows[0]) return rows[0].cursor;
  const consumer = await find(on, stream, name);
  if (!consumer) throw unknown(stream, name);
  if (consumer.instance !== instance)
    throw new BoundaryError(
      'ABORTED',
      'consumer_taken_over',
      `consumer "${name}" of ${streamName(stream)} was taken over by instance "${consumer.instance}"; ` +
        'what you have fetched is fetched again there',
    );
  throw new BoundaryError(
    'OUT_OF_RANGE',
    'not_fetched',
    `consumer "${name}" of ${streamName(stream)} has fetched up to offset ${consumer.fetched} and cannot confirm ${offset}`,
  );
}

export async function seek(
  on: Queryable,
  stream: StreamId,
  name: string,
  cursor: number,
): Promise<ConsumerState> {
  const { rows } = await on.query<Row>(
    `update boundary.consumers set cursor = $6, fetched = $6, generation = generation + 1
      where ${ofStream} and name = $5 returning ${columns}`,
    [...keyOf(stream), name, cursor],
  );
  if (!rows[0]) throw unknown(stream, name);
  return toState(rows[0]);
}

export async function remove(on: Queryable, stream: StreamId, name: string): Promise<boolean> {
  const { rowCount } = await on.query(`delete from boundary.consumers where ${ofStream} and name = $5`, [
    ...keyOf(stream),
    name,
  ]);
  return (rowCount ?? 0) > 0;
}

/** Deletes the consumers of this name on all streams of one buffer. */
export async function removeAll(
  on: Queryable,
  { tenantId, buffer }: Pick<StreamId, 'tenantId' | 'buffer'>,
  name: string,
): Promise<void> {
  await on.query('delete from boundary.consumers where tenant_id = $1 and buffer = $2 and name = $3', [
    tenantId,
    buffer,
    name,
  ]);
}

/** `lock`: keeps others from moving it until the transaction ends. Undefined: there is no such consumer. */
export async function cursorOf(
  on: Queryable,
  stream: StreamId,
  name: string,
  { lock = false }: { readonly lock?: boolean } = {},
): Promise<number | undefined> {
  const { rows } = await on.query<{ cursor: number }>(
    `select cursor::float8 as cursor from boundary.consumers
      where ${ofStream} and name = $5 ${lock ? 'for update' : ''}`,
    [...keyOf(stream), name],
  );
  return rows[0]?.cursor;
}

/** For a consumer of the node itself: moves the cursor that `cursorOf` has locked. */
export async function advance(on: Queryable, stream: StreamId, name: string, offset: number): Promise<void> {
  await on.query(
    `update boundary.consumers
        set cursor = $6, fetched = greatest(fetched, $6), confirmed_at = clock_timestamp()
      where ${ofStream} and name = $5`,
    [...keyOf(stream), name, offset],
  );
}

export async function list(on: Queryable, stream: StreamId): Promise<ConsumerState[]> {
  const { rows } = await on.query<Row>(
    `select ${columns} from boundary.consumers where ${ofStream} order by name`,
    keyOf(stream),
  );
  return rows.map(toState);
}

async function find(on: Queryable, stream: StreamId, name: string): Promise<ConsumerState | undefined> {
  const { rows } = await on.query<Row>(
    `select ${columns} from boundary.consumers where ${ofStream} and name = $5`,
    [...keyOf(stream), name],
  );
  return rows[0] && toState(rows[0]);
}

const unknown = (stream: StreamId, name: string): BoundaryError =>
  new BoundaryError('NOT_FOUND', 'unknown_consumer', `${streamName(stream)} has no consumer "${name}"`);
