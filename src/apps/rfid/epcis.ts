/**
 * Movements as GS1 EPCIS 2.0 events, in JSON-LD: a basket (what) was observed (action) at a time (when), at a reader and
 * hence a place (where), arriving there (why). The mapping is pure; documents are written as they are read, so that a
 * year of movements takes no more memory than a minute of them.
 */
import { hash } from 'node:crypto';
import type { Queryable } from '../../engine/database/database.ts';

/** A movement, with all that an event says of it. */
export interface MovementRecord {
  readonly id: string;
  readonly tenantId: string;
  readonly epcUri: string;
  readonly deviceId: string;
  readonly fromLocationId: string | null;
  readonly toLocationId: string;
  /** UTC with microseconds. */
  readonly eventTime: string;
  readonly recordTime: string;
}

export interface ObjectEvent {
  readonly type: 'ObjectEvent';
  readonly eventID: string;
  readonly eventTime: string;
  readonly recordTime: string;
  readonly eventTimeZoneOffset: '+00:00';
  readonly epcList: readonly string[];
  readonly action: 'OBSERVE';
  readonly bizStep: 'arriving';
  readonly disposition: 'in_progress';
  readonly readPoint: { readonly id: string };
  readonly bizLocation: { readonly id: string };
  readonly sourceList?: readonly { readonly type: 'location'; readonly source: string }[];
  readonly destinationList: readonly { readonly type: 'location'; readonly destination: string }[];
}

/** How places are named to others, such as by their SGLN. */
export interface EpcisNames {
  readonly location: (tenantId: string, locationId: string) => string;
  readonly device: (tenantId: string, serial: string) => string;
}

/** URIs that are valid only inside this installation. */
export const ownNames: EpcisNames = {
  location: (tenantId, id) => `urn:tallyman:location:${part(tenantId)}:${part(id)}`,
  device: (tenantId, serial) => `urn:tallyman:device:${part(tenantId)}:${part(serial)}`,
};

const part = (text: string): string => encodeURIComponent(text.toWellFormed());

export function toObjectEvent(movement: MovementRecord, names: EpcisNames = ownNames): ObjectEvent {
  const { tenantId, fromLocationId } = movement;
  const to = names.location(tenantId, movement.toLocationId);
  return {
    type: 'ObjectEvent',
    eventID: eventId(movement),
    eventTime: movement.eventTime,
    recordTime: movement.recordTime,
    eventTimeZoneOffset: '+00:00',
    epcList: [movement.epcUri],
    action: 'OBSERVE',
    bizStep: 'arriving',
    disposition: 'in_progress',
    readPoint: { id: names.device(tenantId, movement.deviceId) },
    bizLocation: { id: to },
    ...(fromLocationId !== null && {
      sourceList: [{ type: 'location' as const, source: names.location(tenantId, fromLocationId) }],
    }),
    destinationList: [{ type: 'location', destination: to }],
  };
}

/** The same for a movement whenever it is exported: a UUID of version 8, made of a hash. */
function eventId({ tenantId, id }: MovementRecord): string {
  const hex = hash('sha256', `tallyman movement ${tenantId} ${id}`, 'hex');
  const variant = ((Number.parseInt(hex.charAt(16), 16) & 3) | 8).toString(16);
  const groups = [
    hex.slice(0, 8),
    hex.slice(8, 12),
    `8${hex.slice(13, 16)}`,
    variant + hex.slice(17, 20),
    hex.slice(20, 32),
  ];
  return `urn:uuid:${groups.join('-')}`;
}

export interface MovementRange {
  readonly tenantId: string;
  /** ISO 8601; from is included, to is not. */
  readonly from?: string;
  readonly to?: string;
}

/** Movements there are now, in the order they were recorded, a page at a time. Relies on movements_pkey. */
export async function* readMovements(
  on: Queryable,
  { tenantId, from, to }: MovementRange,
  pageSize = 1000,
): AsyncGenerator<MovementRecord> {
  const newest = await on.query<{ id: string }>(
    'select coalesce(max(id), 0)::text as id from rfid.movements',
  );
  const upTo = newest.rows[0]?.id ?? '0';
  for (let after = '0'; ; ) {
    const { rows } = await on.query<MovementRecord>(
      `select m.id, m.tenant_id as "tenantId", b.epc_uri as "epcUri", m.device_id as "deviceId",
              m.from_location_id as "fromLocationId", m.to_location_id as "toLocationId",
              to_char(m.event_timestamp at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "eventTime",
              to_char(m.created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "recordTime"
         from rfid.movements m join rfid.baskets b on b.id = m.basket_id
        where m.tenant_id = $1 and m.id > $2 and m.id <= $3
          and ($4::timestamptz is null or m.event_timestamp >= $4)
          and ($5::timestamptz is null or m.event_timestamp < $5)
        order by m.id limit $6`,
      [tenantId, after, upTo, from ?? null, to ?? null, pageSize],
    );
    yield* rows;
    const last = rows.at(-1);
    if (!last || rows.length < pageSize) return;
    after = last.id;
  }
}

export const epcisContentType = 'application/ld+json';

/** An EPCISDocument, piece by piece. */
export async function* epcisDocument(
  movements: AsyncIterable<MovementRecord> | Iterable<MovementRecord>,
  options: { readonly names?: EpcisNames; readonly createdAt?: Date } = {},
): AsyncGenerator<string> {
  const { names = ownNames, createdAt = new Date() } = options;
  const head = {
    '@context': ['https://ref.gs1.org/standards/epcis/2.0.0/epcis-context.jsonld'],
    type: 'EPCISDocument',
    schemaVersion: '2.0',
    creationDate: createdAt.toISOString(),
  };
  yield `${JSON.stringify(head).slice(0, -1)},"epcisBody":{"eventList":[`;
  let separator = '';
  for await (const movement of movements) {
    yield separator + JSON.stringify(toObjectEvent(movement, names));
    separator = ',';
  }
  yield ']}}';
}
