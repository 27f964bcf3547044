/** Shipments, as users see them. */

import type { Queryable } from '../../../engine/database/database.ts';
import { TallymanError } from '../../../engine/errors.ts';
import { type Page, type PageRequest, pageOf, pageRequest } from '../../../engine/paging.ts';
import type { ShipmentStatus } from './reconcile.ts';

export interface Shipment {
  readonly id: string;
  readonly tenantId: string;
  readonly number: string;
  readonly status: ShipmentStatus;
  readonly createdAt: Date;
  readonly loadingAt: Date | null;
  readonly shippedAt: Date | null;
  readonly lines: number;
  readonly loadedLines: number;
  /** Their baskets have come back. */
  readonly closedLines: number;
}

export interface ShipmentLine {
  readonly id: string;
  readonly oblpn: string;
  readonly basketId: string | null;
  readonly epcHex: string | null;
  readonly loadedAt: Date | null;
  /** The camera that saw it. */
  readonly loadedBy: string | null;
  readonly closedAt: Date | null;
}

const columns = `s.id, s.tenant_id as "tenantId", s.number, s.status, s.created_at as "createdAt",
  s.loading_at as "loadingAt", s.shipped_at as "shippedAt", n.lines, n.loaded as "loadedLines", n.closed as "closedLines"`;

/** Relies on shipment_lines_of. */
const counted = `rfid.shipments s cross join lateral (
  select count(*)::int as lines, count(l.basket_id)::int as loaded, count(l.closed_at)::int as closed
    from rfid.shipment_lines l where l.shipment_id = s.id) n`;

/** Newest first. */
export async function listShipments(
  on: Queryable,
  tenantId: string,
  filter: { readonly status?: ShipmentStatus } = {},
  page: PageRequest = {},
): Promise<Page<Shipment>> {
  const { limit, fetchLimit, cursor } = pageRequest(page);
  const { rows } = await on.query<Shipment>(
    `select ${columns} from ${counted}
      where s.tenant_id = $1 and ($2::text is null or s.status = $2) and ($3::bigint is null or s.id < $3)
      order by s.id desc limit $4`,
    [tenantId, filter.status ?? null, cursor, fetchLimit],
  );
  return pageOf(rows, limit);
}

/** By its number, with its lines. */
export async function requireShipment(
  on: Queryable,
  tenantId: string,
  number: string,
): Promise<Shipment & { readonly plates: readonly ShipmentLine[] }> {
  const { rows } = await on.query<Shipment>(
    `select ${columns} from ${counted} where s.tenant_id = $1 and s.number = $2`,
    [tenantId, number],
  );
  const [shipment] = rows;
  if (!shipment) throw new TallymanError('NOT_FOUND', `there is no shipment "${number}"`);
  const { rows: plates } = await on.query<ShipmentLine>(
    `select l.id, l.oblpn, l.basket_id as "basketId", b.epc_hex as "epcHex", l.loaded_at as "loadedAt",
            l.loaded_by as "loadedBy", l.closed_at as "closedAt"
       from rfid.shipment_lines l left join rfid.baskets b on b.id = l.basket_id
      where l.shipment_id = $1 order by l.oblpn`,
    [shipment.id],
  );
  return { ...shipment, plates };
}
