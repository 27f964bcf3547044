import type { Queryable } from '../../../engine/database/database.ts';
import type { ShipmentStatus } from './reconcile.ts';

export interface Line {
  readonly id: string;
  readonly shipmentId: string;
  readonly basketId: string | null;
}

/** The line of a plate. Relies on the unique key of (tenant_id, oblpn). */
export async function findLine(on: Queryable, tenantId: string, oblpn: string): Promise<Line | undefined> {
  const { rows } = await on.query<Line>(
    `select id, shipment_id as "shipmentId", basket_id as "basketId" from rfid.shipment_lines
      where tenant_id = $1 and oblpn = $2`,
    [tenantId, oblpn],
  );
  return rows[0];
}

/** Returns its status and locks it until the commit. */
export async function lockShipment(tx: Queryable, id: string): Promise<ShipmentStatus> {
  const { rows } = await tx.query<{ status: ShipmentStatus }>(
    'select status from rfid.shipments where id = $1 for update',
    [id],
  );
  return (rows[0] as { status: ShipmentStatus }).status;
}

/** Where a device stands; undefined: it is not known, or stands nowhere. */
export async function locationOf(
  on: Queryable,
  tenantId: string,
  deviceId: string,
): Promise<string | undefined> {
  const { rows } = await on.query<{ id: string | null }>(
    'select location_id as id from iot.devices where tenant_id = $1 and serial = $2',
    [tenantId, deviceId.trim()],
  );
  return rows[0]?.id ?? undefined;
}

export interface SightingRow {
  readonly basketId: string;
  readonly micros: string;
  readonly taken: boolean;
}

/** The baskets that readers at a location saw around a time. Relies on processings_by_time. */
export async function baskets(
  tx: Queryable,
  where: { readonly tenantId: string; readonly locationId: string },
  when: { readonly at: string; readonly withinMs: number },
): Promise<SightingRow[]> {
  const { rows } = await tx.query<SightingRow>(
    `select p.basket_id as "basketId", floor(extract(epoch from p.event_timestamp) * 1000000)::text as micros,
            exists (select 1 from rfid.shipment_lines l where l.basket_id = p.basket_id and l.closed_at is null) as taken
       from rfid.tag_read_processings p
       join iot.devices d on d.tenant_id = p.tenant_id and d.serial = p.device_id
      where p.tenant_id = $1 and d.location_id = $2 and p.error_message is null and p.basket_id is not null
        and p.event_timestamp between $3::timestamptz - $4 * interval '1 millisecond'
                                  and $3::timestamptz + $4 * interval '1 millisecond'`,
    [where.tenantId, where.locationId, when.at, when.withinMs],
  );
  return rows;
}

/** Locks the basket. False: it is on an open line of another plate by now. */
export async function lockFreeBasket(tx: Queryable, id: string): Promise<boolean> {
  await tx.query('select 1 from rfid.baskets where id = $1 for no key update', [id]);
  const { rows } = await tx.query(
    'select 1 from rfid.shipment_lines where basket_id = $1 and closed_at is null',
    [id],
  );
  return rows.length === 0;
}

/**
 * Puts the basket on the line. Closes the line if the basket is already back, because reads of the return door came first: with the
 * first of them after the loading. Relies on processings_of_basket.
 * False: the line has moved to another shipment, or has a basket.
 */
export async function load(
  tx: Queryable,
  line: Line,
  basket: { readonly id: string; readonly at: string; readonly by: string },
): Promise<boolean> {
  const { rowCount } = await tx.query(
    `with basket as (
       update rfid.baskets set returned_at = case when returned_at >= $3::timestamptz then returned_at end
        where id = $2 returning returned_at)
     update rfid.shipment_lines l set basket_id = $2, loaded_at = $3, loaded_by = $4,
            closed_at = case when b.returned_at is not null then coalesce(
              (select min(p.event_timestamp) from rfid.tag_read_processings p
                where p.basket_id = $2 and p.error_message is null and p.at_return_door and p.event_timestamp >= $3),
              b.returned_at) end
       from basket b where l.id = $1 and l.shipment_id = $5 and l.basket_id is null`,
    [line.id, basket.id, basket.at, basket.by, line.shipmentId],
  );
  return rowCount === 1;
}

export async function countLines(
  tx: Queryable,
  shipmentId: string,
): Promise<{ readonly all: number; readonly loaded: number }> {
  const { rows } = await tx.query<{ all: number; loaded: number }>(
    `select count(*)::int as all, count(basket_id)::int as loaded from rfid.shipment_lines where shipment_id = $1`,
    [shipmentId],
  );
  return rows[0] ?? { all: 0, loaded: 0 };
}

/** `at`: when the camera saw the plate that caused this step. Emits an event for each step, also for one that was skipped. */
export async function saveStatus(
  tx: Queryable,
  id: string,
  { before, status }: { readonly before: ShipmentStatus; readonly status: ShipmentStatus },
  at: string,
): Promise<void> {
  await tx.query(
    `update rfid.shipments
        set status = $2, loading_at = coalesce(loading_at, case when $2 <> 'PLANNED' then $3::timestamptz end),
            shipped_at = coalesce(shipped_at, case when $2 = 'SHIPPED' then $3::timestamptz end)
      where id = $1`,
    [id, status, at],
  );
  for (const step of stepsOf(before, status))
    await tx.query('select rfid.tell_shipments($1, $2, $3)', [step, [id], at]);
}

const steps = ['planned', 'loading', 'shipped'] as const;

/** The steps behind `before` up to `status`. */
function stepsOf(before: ShipmentStatus, status: ShipmentStatus): readonly string[] {
  const place = (one: ShipmentStatus): number => steps.findIndex((step) => step.toUpperCase() === one);
  return steps.slice(place(before) + 1, place(status) + 1);
}

/** Emits `closed` for a shipment that has left, if all of its baskets are back. Must be the last step of its transaction. */
export async function tellClosed(tx: Queryable, id: string): Promise<void> {
  await tx.query('select rfid.tell_closed($1)', [[id]]);
}
