/**
 * Movements as GS1 EPCIS 2.0 events, in JSON-LD: a basket (what) was observed (action) at a time (when), at a reader and
 * hence a place (where), arriving there (why). The mapping is pure; documents are written as they are read, so that a
 * year of movements takes no more memory than a minute of them.
 *
 * EPCIS events never change. What a late read makes wrong is declared: the event is told once more, under its id, with an
 * `errorDeclaration`; what is right instead is an event of its own.
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
  /** How others know these places; null or absent: only we do. */
  readonly fromSgln?: string | null;
  readonly toSgln?: string | null;
  /** UTC with microseconds. */
  readonly eventTime: string;
  readonly recordTime: string;
  /** It is no new movement, but corrects what was told of one. */
  readonly correction?: Correction | null;
}

export interface Correction {
  /** The id under which it was told: of a movement, or of the correction before. */
  readonly corrects: string;
  readonly wasFromLocationId: string | null;
  readonly wasFromSgln?: string | null;
  /** The movement has not been; otherwise it began elsewhere. */
  readonly isWithdrawn: boolean;
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
  readonly 'tallyman:device': string;
  readonly errorDeclaration?: {
    readonly declarationTime: string;
    readonly reason: 'did_not_occur' | 'incorrect_data';
    readonly correctiveEventIDs?: readonly string[];
  };
}

/** How places without an SGLN, and their readers, are named to others. */
export interface EpcisNames {
  readonly location: (tenantId: string, locationId: string) => string;
  readonly device: (tenantId: string, serial: string) => string;
}

/** URIs that are valid only inside this installation. */
const ownNames: EpcisNames = {
  location: (tenantId, id) => `urn:tallyman:location:${part(tenantId)}:${part(id)}`,
  device: (tenantId, serial) => `urn:tallyman:device:${part(tenantId)}:${part(serial)}`,
};

const part = (text: string): string => encodeURIComponent(text.toWellFormed());

export function toObjectEvent(movement: MovementRecord, names: EpcisNames = ownNames): ObjectEvent {
  const { tenantId, fromLocationId, fromSgln, toSgln } = movement;
  const to = toSgln ?? names.location(tenantId, movement.toLocationId);
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
    readPoint: { id: toSgln ?? names.device(tenantId, movement.deviceId) },
    bizLocation: { id: to },
    ...(fromLocationId !== null && {
      sourceList: [
        { type: 'location' as const, source: fromSgln ?? names.location(tenantId, fromLocationId) },
      ],
    }),
    destinationList: [{ type: 'location', destination: to }],
    'tallyman:device': movement.deviceId.toWellFormed(),
  };
}

/** A movement is one event. A correction declares an event that was told, and tells what is right, if the movement still is. */
export function toObjectEvents(record: MovementRecord, names: EpcisNames = ownNames): ObjectEvent[] {
  const event = toObjectEvent(record, names);
  const { correction, recordTime: declarationTime } = record;
  if (!correction) return [event];
  const { corrects: id, wasFromLocationId: fromLocationId, wasFromSgln: fromSgln = null } = correction;
  const told = toObjectEvent({ ...record, id, fromLocationId, fromSgln }, names);
  if (correction.isWithdrawn)
    return [{ ...told, errorDeclaration: { declarationTime, reason: 'did_not_occur' } }];
  const correctiveEventIDs = [event.eventID];
  return [
    { ...told, errorDeclaration: { declarationTime, reason: 'incorrect_data', correctiveEventIDs } },
    event,
  ];
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
  /** Movements after this id. Default: from the first. */
  readonly after?: string;
  /** Movements up to this id. Default: the newest there is now. */
  readonly upTo?: string;
  /** At most so many movements and corrections. Default: all. */
  readonly limit?: number;
}

/**
 * Movements as they were recorded, and corrections of them, in the order they were recorded, a page at a time. What lies between two
 * ids is the same whenever it is read. Relies on movements_pkey, movement_corrections_pkey and movement_corrections_by_movement.
 */
export async function* readMovements(
  on: Queryable,
  { tenantId, from, to, ...range }: MovementRange,
  pageSize = 1000,
): AsyncGenerator<MovementRecord> {
  const upTo = range.upTo ?? (await newestMovement(on));
  let left = range.limit ?? Number.POSITIVE_INFINITY;
  for (let after = range.after ?? '0'; left > 0; ) {
    const wanted = Math.min(pageSize, left);
    const { rows } = await on.query<MovementRecord>(pageOfMovements, [
      tenantId,
      after,
      upTo,
      from ?? null,
      to ?? null,
      wanted,
    ]);
    yield* rows;
    left -= rows.length;
    const last = rows.at(-1);
    if (!last || rows.length < wanted) return;
    after = last.id;
  }
}

const isoOf = (column: string): string =>
  `to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;

const columns = `tenant_id, basket_id, device_id, to_location_id, event_timestamp`;
/** Each part stops at the limit by itself, so that none reads more than a page. */
const inRange = (id: string): string => `tenant_id = $1 and ${id} > $2 and ${id} <= $3
          and ($4::timestamptz is null or event_timestamp >= $4) and ($5::timestamptz is null or event_timestamp < $5)`;

/** Of a movement that was corrected, what was told first is in its first correction. */
const pageOfMovements = `
  with entries as (
    (select id, ${columns}, from_location_id, created_at, null::bigint as corrects, null::bigint as was_from, false as is_withdrawn
       from rfid.movements m
      where ${inRange('id')}
        and not exists (select 1 from rfid.movement_corrections c where c.movement_id = m.id)
      order by id limit $6)
    union all
    (select movement_id, ${columns}, was_from_location_id, recorded_at, null, null, false
       from rfid.movement_corrections
      where corrects = movement_id and ${inRange('movement_id')}
      order by movement_id limit $6)
    union all
    (select id, ${columns}, from_location_id, created_at, corrects, was_from_location_id, is_withdrawn
       from rfid.movement_corrections
      where ${inRange('id')}
      order by id limit $6)
  )
  select e.id, e.tenant_id as "tenantId", b.epc_uri as "epcUri", e.device_id as "deviceId",
         e.from_location_id as "fromLocationId", e.to_location_id as "toLocationId",
         f.sgln as "fromSgln", t.sgln as "toSgln",
         ${isoOf('e.event_timestamp')} as "eventTime", ${isoOf('e.created_at')} as "recordTime",
         case when e.corrects is not null then
           json_build_object('corrects', e.corrects::text, 'wasFromLocationId', e.was_from::text, 'wasFromSgln', w.sgln,
                             'isWithdrawn', e.is_withdrawn) end as correction
    from entries e join rfid.baskets b on b.id = e.basket_id
    left join iot.locations f on f.id = e.from_location_id left join iot.locations t on t.id = e.to_location_id
    left join iot.locations w on w.id = e.was_from
   order by e.id limit $6`;

async function newestMovement(on: Queryable): Promise<string> {
  const { rows } = await on.query<{ id: string }>(
    `select greatest((select max(id) from rfid.movements), (select max(id) from rfid.movement_corrections), 0)::text as id`,
  );
  return rows[0]?.id ?? '0';
}

export const epcisContentType = 'application/ld+json';

/** An EPCISDocument, piece by piece. */
export async function* epcisDocument(
  movements: AsyncIterable<MovementRecord> | Iterable<MovementRecord>,
  options: {
    readonly names?: EpcisNames;
    readonly createdAt?: Date;
    /** Where the next document begins, given the last movement of this one. */
    readonly nextCursor?: (last: MovementRecord | undefined, count: number) => string;
  } = {},
): AsyncGenerator<string> {
  const { names = ownNames, createdAt = new Date(), nextCursor } = options;
  const head = {
    '@context': [
      'https://ref.gs1.org/standards/epcis/2.0.0/epcis-context.jsonld',
      { tallyman: 'urn:tallyman:epcis:' },
    ],
    type: 'EPCISDocument',
    schemaVersion: '2.0',
    creationDate: createdAt.toISOString(),
  };
  yield `${JSON.stringify(head).slice(0, -1)},"epcisBody":{"eventList":[`;
  let last: MovementRecord | undefined;
  let count = 0;
  for await (const movement of movements) {
    const events = toObjectEvents(movement, names).map((event) => JSON.stringify(event));
    yield (count > 0 ? ',' : '') + events.join(',');
    last = movement;
    count += 1;
  }
  yield nextCursor ? `]},"tallyman:nextCursor":${JSON.stringify(nextCursor(last, count))}}` : ']}}';
}
