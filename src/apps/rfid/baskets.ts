import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import { type Page, type PageRequest, pageOf, pageRequest } from '../../engine/paging.ts';

export interface Basket {
  readonly id: string;
  readonly tenantId: string;
  readonly epcHex: string;
  readonly epcUri: string;
  readonly locationId: string | null;
  readonly lastDeviceId: string | null;
  readonly firstSeenAt: Date | null;
  readonly lastSeenAt: Date | null;
}

export interface Movement {
  readonly id: string;
  readonly basketId: string;
  readonly epcHex: string;
  readonly epcUri: string;
  readonly fromLocationId: string | null;
  readonly toLocationId: string;
  readonly deviceId: string;
  readonly at: Date;
  /** How often it was made again within the window, and when last. */
  readonly repeats: number;
  readonly lastAt: Date | null;
}

export interface MovementFilter {
  readonly basketId?: string;
  readonly from?: Date;
  readonly to?: Date;
}

const basketColumns = `b.id, b.tenant_id as "tenantId", b.epc_hex as "epcHex", b.epc_uri as "epcUri",
  b.location_id as "locationId", b.last_device_id as "lastDeviceId", b.first_seen_at as "firstSeenAt",
  b.last_seen_at as "lastSeenAt"`;

/** By its tag, as 24 hexadecimal digits. Relies on baskets_by_epc. */
async function findBasket(on: Queryable, tenantId: string, epc: string): Promise<Basket | undefined> {
  const { rows } = await on.query<Basket>(
    `select ${basketColumns} from rfid.baskets b where b.tenant_id = $1 and b.epc_hex = $2`,
    [tenantId, epc.trim().toUpperCase()],
  );
  return rows[0];
}

export async function requireBasket(on: Queryable, tenantId: string, epc: string): Promise<Basket> {
  const basket = await findBasket(on, tenantId, epc);
  if (!basket) throw new TallymanError('NOT_FOUND', `no basket with the tag ${epc} has been seen`);
  return basket;
}

/** Newest first: by when they were first seen. */
export async function listBaskets(
  on: Queryable,
  tenantId: string,
  filter: { readonly locationId?: string },
  page: PageRequest,
): Promise<Page<Basket>> {
  const { limit, fetchLimit, cursor } = pageRequest(page);
  const { rows } = await on.query<Basket>(
    `select ${basketColumns} from rfid.baskets b
      where b.tenant_id = $1 and ($2::bigint is null or b.location_id = $2) and ($3::bigint is null or b.id < $3)
      order by b.id desc limit $4`,
    [tenantId, filter.locationId ?? null, cursor, fetchLimit],
  );
  return pageOf(rows, limit);
}

/** Newest first. */
export async function listMovements(
  on: Queryable,
  tenantId: string,
  filter: MovementFilter,
  page: PageRequest,
): Promise<Page<Movement>> {
  const { limit, fetchLimit, cursor } = pageRequest(page);
  const { rows } = await on.query<Movement>(
    `select m.id, m.basket_id as "basketId", b.epc_hex as "epcHex", b.epc_uri as "epcUri",
            m.from_location_id as "fromLocationId", m.to_location_id as "toLocationId", m.device_id as "deviceId",
            m.event_timestamp as at, m.repeats, m.last_at as "lastAt"
       from rfid.movements m join rfid.baskets b on b.id = m.basket_id
      where m.tenant_id = $1 and ($2::bigint is null or m.basket_id = $2)
        and ($3::timestamptz is null or m.event_timestamp >= $3) and ($4::timestamptz is null or m.event_timestamp < $4)
        and ($5::bigint is null or m.id < $5)
      order by m.id desc limit $6`,
    [tenantId, filter.basketId ?? null, filter.from ?? null, filter.to ?? null, cursor, fetchLimit],
  );
  return pageOf(rows, limit);
}
