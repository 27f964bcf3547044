import type { Queryable } from '../../../engine/database/database.ts';
import type { Page, PageRequest } from '../../../engine/paging.ts';
import type { TenantQueries } from '../../../host/timeline.ts';
import type { BatteryStatus, Item } from '../compile/types.ts';
import { notFound } from '../errors.ts';
import { textPage, textPageOf } from './page.ts';

/** A battery with its serial number. Its passport has the same id. */
export interface StoredItem extends Item {
  readonly passportId: string;
  readonly gtin: string;
  readonly ceasedAt: Date | null;
  readonly ceasedReason: string | null;
  readonly createdAt: Date;
}

/** Of a model (`item` null) or of one battery. */
export interface StoredPassport {
  readonly id: string;
  readonly productId: string;
  readonly gtin: string;
  readonly serial: string | null;
  /** The version that counts now, if one does. */
  readonly activeVersionId: string | null;
  readonly createdAt: Date;
  readonly item: StoredItem | null;
}

/** Of another battery that this one was made from, or that was made from this one. */
export interface RelatedItem {
  readonly passportId: string;
  readonly gtin: string;
  readonly serial: string;
}

interface PassportRow extends Omit<StoredPassport, 'item'> {
  readonly manufacturedOn: string | null;
  readonly manufacturedAt: string;
  readonly status: BatteryStatus;
  readonly ceasedAt: Date | null;
  readonly ceasedReason: string | null;
  readonly itemCreatedAt: Date;
}

const columns = `p.id, p.product_id as "productId", o.gtin, p.serial, p.created_at as "createdAt",
  (select v.id from passports.versions v where v.passport_id = p.id and v.state = 'ACTIVE') as "activeVersionId",
  i.manufactured_on as "manufacturedOn", i.manufactured_at as "manufacturedAt", i.status, i.ceased_at as "ceasedAt",
  i.ceased_reason as "ceasedReason", i.created_at as "itemCreatedAt"`;
const from = `from passports.passports p
  join passports.products o on o.tenant_id = p.tenant_id and o.id = p.product_id
  left join passports.items i on i.passport_id = p.id`;

function passportOf(row: PassportRow): StoredPassport {
  const { manufacturedOn, manufacturedAt, status, ceasedAt, ceasedReason, itemCreatedAt, ...passport } = row;
  const { id, gtin, serial } = passport;
  return {
    ...passport,
    item:
      manufacturedOn === null || serial === null
        ? null
        : {
            passportId: id,
            gtin,
            serial,
            manufacturedOn,
            manufacturedAt,
            status,
            ceasedAt,
            ceasedReason,
            createdAt: itemCreatedAt,
          },
  };
}

export async function findPassport(on: TenantQueries, id: string): Promise<StoredPassport | undefined> {
  const { rows } = await on.query<PassportRow>(
    `select ${columns} ${from} where p.tenant_id = $1 and p.id = $2`,
    [on.tenantId, id],
  );
  return rows[0] && passportOf(rows[0]);
}

export async function requirePassport(on: TenantQueries, id: string): Promise<StoredPassport> {
  const passport = await findPassport(on, id);
  if (!passport) throw notFound('passport', id);
  return passport;
}

/** By GTIN and serial number; the model's passport without one. */
export async function findPassportOf(
  on: TenantQueries,
  gtin: string,
  serial: string | null,
): Promise<StoredPassport | undefined> {
  // Two texts: no index serves `is not distinct from`, and a model may have a million batteries.
  const isOne = serial === null ? 'p.serial is null' : 'p.serial = $3';
  const { rows } = await on.query<PassportRow>(
    `select ${columns} ${from} where p.tenant_id = $1 and o.gtin = $2 and ${isOne}`,
    serial === null ? [on.tenantId, gtin] : [on.tenantId, gtin, serial],
  );
  return rows[0] && passportOf(rows[0]);
}

/**
 * Which tenant answers for a GTIN: a label names none. Runs outside of any tenant. The tenant that registered it first does.
 * Relies on products_by_gtin.
 */
export async function tenantOfGtin(on: Queryable, gtin: string): Promise<string | undefined> {
  const { rows } = await on.query<{ tenantId: string }>(
    'select p.tenant_id as "tenantId" from passports.products p where p.gtin = $1 order by p.created_at, p.tenant_id limit 1',
    [gtin],
  );
  return rows[0]?.tenantId;
}

export async function listPassports(
  on: TenantQueries,
  filter: { readonly productId?: string; readonly serial?: string } = {},
  page: PageRequest = {},
): Promise<Page<StoredPassport>> {
  const { size, fetch, cursor } = textPage(page);
  const { rows } = await on.query<PassportRow>(
    `select ${columns} ${from}
      where p.tenant_id = $1 and ($2::text is null or p.product_id = $2) and ($3::text is null or p.serial = $3)
        and ($4 = '' or p.id > nullif($4, '')::uuid) order by p.id limit $5`,
    [on.tenantId, filter.productId ?? null, filter.serial ?? null, cursor, fetch],
  );
  return textPageOf(rows.map(passportOf), size, ({ id }) => id);
}

const related = (own: string, other: string) => `
  select i.passport_id as "passportId", i.gtin, i.serial
    from passports.item_predecessors r join passports.items i on i.passport_id = r.${other}
   where r.tenant_id = $1 and r.${own} = $2 order by i.gtin, i.serial`;

/** Batteries that this one was made from. */
export async function predecessorsOf(on: TenantQueries, passportId: string): Promise<readonly RelatedItem[]> {
  return (await on.query<RelatedItem>(related('passport_id', 'predecessor_id'), [on.tenantId, passportId]))
    .rows;
}

/** Batteries that were made from this one. */
export async function successorsOf(on: TenantQueries, passportId: string): Promise<readonly RelatedItem[]> {
  return (await on.query<RelatedItem>(related('predecessor_id', 'passport_id'), [on.tenantId, passportId]))
    .rows;
}
