import type { Queryable } from '../../../engine/database/database.ts';
import { type ShipmentStatus, statusAfter } from './reconcile.ts';
import { countLines, lockShipment, saveStatus, tellClosed } from './store.ts';

/** A plate that is to leave with a shipment. */
export interface OutboundPlate {
  readonly oblpn: string;
  /** The shipment's number. */
  readonly shipment: string;
}

/**
 * Creates the missing shipments and lines. A plate that was given to another shipment moves there, unless it is loaded:
 * then it has left with its first shipment. A shipment that only waited for plates that moved away has left. A second call
 * with the same plates changes nothing. Returns how many lines are new.
 */
export async function planShipments(
  tx: Queryable,
  tenantId: string,
  plates: readonly OutboundPlate[],
): Promise<number> {
  // The last entry for a plate counts; in key order, so that two callers cannot deadlock.
  const latest = [...new Map(plates.map((plate) => [plate.oblpn, plate])).values()];
  if (latest.length === 0) return 0;
  const numbers = [...new Set(latest.map(({ shipment }) => shipment))];
  const made = await tx.query<{ id: string }>(
    `insert into rfid.shipments (tenant_id, number)
     select $1, n from unnest($2::text[]) n order by n on conflict (tenant_id, number) do nothing returning id`,
    [tenantId, numbers],
  );
  if (made.rows.length > 0)
    await tx.query(`select rfid.tell_shipments('planned', $1, now())`, [made.rows.map(({ id }) => id)]);
  const oblpns = latest.map(({ oblpn }) => oblpn);
  const wanted = latest.map(({ shipment }) => shipment);
  const left = await lockShipmentsLeft(tx, tenantId, oblpns, wanted);
  const { rows } = await tx.query<{ isNew: boolean }>(
    `insert into rfid.shipment_lines as l (tenant_id, oblpn, shipment_id)
     select $1, p.oblpn, s.id from unnest($2::text[], $3::text[]) as p (oblpn, number)
       join rfid.shipments s on s.tenant_id = $1 and s.number = p.number order by p.oblpn
     on conflict (tenant_id, oblpn) do update set shipment_id = excluded.shipment_id
       where l.basket_id is null and l.shipment_id <> excluded.shipment_id
     returning l.xmax = 0 as "isNew"`,
    [tenantId, oblpns, wanted],
  );
  for (const [id, status] of left) {
    const next = statusAfter(status, await countLines(tx, id));
    if (next !== status) await saveStatus(tx, id, { before: status, status: next }, new Date().toISOString());
    if (next === 'SHIPPED') await tellClosed(tx, id);
  }
  return rows.filter(({ isNew }) => isNew).length;
}

/** Those of the plates that have no line yet. */
export async function unknownPlates(
  on: Queryable,
  tenantId: string,
  plates: readonly OutboundPlate[],
): Promise<OutboundPlate[]> {
  const { rows } = await on.query<{ oblpn: string }>(
    'select oblpn from rfid.shipment_lines where tenant_id = $1 and oblpn = any ($2::text[])',
    [tenantId, plates.map(({ oblpn }) => oblpn)],
  );
  const known = new Set(rows.map(({ oblpn }) => oblpn));
  return plates.filter(({ oblpn }) => !known.has(oblpn));
}

/** The shipments that plates are about to leave, locked so that none is loaded meanwhile. */
async function lockShipmentsLeft(
  tx: Queryable,
  tenantId: string,
  oblpns: readonly string[],
  wanted: readonly string[],
): Promise<Map<string, ShipmentStatus>> {
  const { rows } = await tx.query<{ id: string }>(
    `select distinct s.id from unnest($2::text[], $3::text[]) as p (oblpn, number)
       join rfid.shipment_lines l on l.tenant_id = $1 and l.oblpn = p.oblpn and l.basket_id is null
       join rfid.shipments s on s.id = l.shipment_id and s.number <> p.number
      order by s.id`,
    [tenantId, oblpns, wanted],
  );
  const left = new Map<string, ShipmentStatus>();
  for (const { id } of rows) left.set(id, await lockShipment(tx, id));
  return left;
}
