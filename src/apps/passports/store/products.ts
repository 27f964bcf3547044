import type { Page, PageRequest } from '../../../engine/paging.ts';
import type { TenantQueries } from '../../../host/timeline.ts';
import type { Product } from '../compile/types.ts';
import { notFound } from '../errors.ts';
import { textPage, textPageOf } from './page.ts';

/** A model of batteries. */
export interface StoredProduct extends Product {
  readonly createdAt: Date;
}

const columns = `p.id, p.name, p.category, p.gtin, p.manufacturer, p.manufacturer_id as "manufacturerId",
  p.created_at as "createdAt"`;

export async function findProduct(on: TenantQueries, id: string): Promise<StoredProduct | undefined> {
  const { rows } = await on.query<StoredProduct>(
    `select ${columns} from passports.products p where p.tenant_id = $1 and p.id = $2`,
    [on.tenantId, id],
  );
  return rows[0];
}

export async function requireProduct(on: TenantQueries, id: string): Promise<StoredProduct> {
  const product = await findProduct(on, id);
  if (!product) throw notFound('product', id);
  return product;
}

export async function listProducts(on: TenantQueries, page: PageRequest = {}): Promise<Page<StoredProduct>> {
  const { size, fetch, cursor } = textPage(page);
  const { rows } = await on.query<StoredProduct>(
    `select ${columns} from passports.products p where p.tenant_id = $1 and p.id > $2 order by p.id limit $3`,
    [on.tenantId, cursor, fetch],
  );
  return textPageOf(rows, size, ({ id }) => id);
}

/** The model alone, as it goes into a compile. */
export const productOf = ({ id, name, category, gtin, manufacturer, manufacturerId }: Product): Product => ({
  id,
  name,
  category,
  gtin,
  manufacturer,
  manufacturerId,
});
