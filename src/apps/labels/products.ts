import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import {
  cutToBytes,
  type Measured,
  type Page,
  type PageRequest,
  pageOf,
  pageRequest,
  withinPageBytes,
} from '../../engine/paging.ts';
import { requireText } from '../../engine/validate.ts';
import type { Change } from './changes/change.ts';
import { enqueueTasks, labelsShowing, lockLabels } from './changes/tasks.ts';
import { placesProblem } from './render/index.ts';

/** What a store sells: the values that its labels' templates are filled with. */
export interface Product {
  readonly id: string;
  readonly sku: string;
  readonly name: string;
  /** As it was given: `1.50`. */
  readonly price: string | null;
  readonly attributes: Readonly<Record<string, string>>;
  readonly updatedAt: Date;
}

export interface ProductChange {
  readonly sku: string;
  /** A new product needs one. */
  readonly name?: string;
  readonly price?: string | null;
  /** Added to those it has; null takes one away. */
  readonly attributes?: Readonly<Record<string, string | null>>;
}

export interface ProductsChanged {
  readonly made: number;
  readonly changed: number;
  /** Products that already had these values. */
  readonly unchanged: number;
  /** Labels that get a new image. */
  readonly labels: number;
}

/** Products in one call: they, and the labels that show them, stay locked until its commit. */
export const mostProducts = 1000;
export const mostAttributes = 100;

const columns = `p.id, p.sku, p.name, p.price::text as price, p.attributes, p.updated_at as "updatedAt"`;

/** Creates or changes products: fields that are not given stay. All of them or, with an error, none. */
export async function putProducts(
  change: Change,
  storeCode: string,
  products: readonly ProductChange[],
): Promise<ProductsChanged> {
  const { tx, tenantId } = change;
  checkProducts(products);
  const { id: storeId, currency } = await holdStore(tx, tenantId, storeCode);
  const { rows } = await tx.query<{ id: string; sku: string; is_new: boolean }>(
    'select id, sku, is_new from labels.put_products($1, $2, $3)',
    [
      tenantId,
      storeId,
      JSON.stringify(
        products.map(({ sku, name, price, attributes }) => ({
          sku,
          name,
          price,
          has_price: price !== undefined,
          attributes,
        })),
      ),
    ],
  );
  const made = new Set(rows.filter((row) => row.is_new).map(({ sku }) => sku));
  const nameless = products.find(({ sku, name }) => made.has(sku) && name === undefined);
  if (nameless) throw new TallymanError('BAD_OPTION', `product "${nameless.sku}" is new and needs a name`);
  await refuseExtraPlaces(tx, storeId, currency, products);
  const changed = new Set(rows.filter((row) => !row.is_new).map(({ id }) => id));
  // The products are locked: no other transaction can assign them to a label before this commits (see assign).
  const ids = changed.size === 0 ? [] : await labelsShowing(change, { products: [...changed] });
  await lockLabels(change, ids);
  const labels = await enqueueTasks(
    change,
    ids,
    ({ productId }) => productId !== null && changed.has(productId),
  );
  return { made: made.size, changed: changed.size, unchanged: products.length - rows.length, labels };
}

/** Refuses products that labels show. */
export async function removeProducts(
  { tx, tenantId }: Change,
  storeCode: string,
  skus: readonly string[],
): Promise<void> {
  const { id: storeId } = await holdStore(tx, tenantId, storeCode);
  const { rows } = await tx.query<{ id: string; sku: string }>(
    'select id, sku from labels.products where store_id = $1 and sku = any ($2) order by sku for update',
    [storeId, skus],
  );
  const missing = skus.find((sku) => !rows.some((row) => row.sku === sku));
  if (missing !== undefined) throw noProduct(storeCode, missing);
  const { rows: shown } = await tx.query<{ mac: string; sku: string }>(
    `select l.mac, p.sku from labels.pages g join labels.labels l on l.id = g.label_id
       join labels.products p on p.id = g.product_id where g.product_id = any ($1) limit 1`,
    [rows.map(({ id }) => id)],
  );
  if (shown[0])
    throw new TallymanError(
      'BAD_STATE',
      `product "${shown[0].sku}" is shown by label ${shown[0].mac}; clear that first`,
    );
  await tx.query('delete from labels.products where id = any ($1)', [rows.map(({ id }) => id)]);
}

export async function requireProduct(
  on: Queryable,
  tenantId: string,
  storeCode: string,
  sku: string,
): Promise<Product> {
  const { rows } = await on.query<Product>(
    `select ${columns} from labels.products p join labels.stores s on s.id = p.store_id
      where s.tenant_id = $1 and s.code = $2 and p.sku = $3`,
    [tenantId, storeCode, sku],
  );
  const [product] = rows;
  if (!product) throw noProduct(storeCode, sku);
  return product;
}

/** Newest first. */
export async function listProducts(
  on: Queryable,
  tenantId: string,
  storeCode: string,
  page: PageRequest = {},
): Promise<Page<Product>> {
  const { limit, fetchLimit, cursor } = pageRequest(page);
  const { rows } = await on.query<Measured<Product>>(
    withinPageBytes(
      `select ${columns} from labels.products p join labels.stores s on s.id = p.store_id
        where s.tenant_id = $1 and s.code = $2 and ($3::bigint is null or p.id < $3)
        order by p.id desc limit $4`,
      'id desc',
      'attributes',
    ),
    [tenantId, storeCode, cursor, fetchLimit],
  );
  const kept = cutToBytes(rows);
  return pageOf(kept.rows, limit, kept);
}

export const noProduct = (storeCode: string, sku: string): TallymanError =>
  new TallymanError('NOT_FOUND', `there is no product "${sku}" in store "${storeCode}"`);

/**
 * Refuses a price with more places than its currency has: what is shown would be rounded, and not what the till asks for.
 * Products with a currency of their own are read only if the store's does not suit.
 */
async function refuseExtraPlaces(
  tx: Queryable,
  storeId: string,
  storeCurrency: string | null,
  products: readonly ProductChange[],
): Promise<void> {
  const priced = products.filter(
    ({ price, attributes }) =>
      typeof price === 'string' && extraPlaces(price, attributes?.currency ?? storeCurrency) !== undefined,
  );
  if (priced.length === 0) return;
  const { rows } = await tx.query<{ sku: string; price: string; currency: string | null }>(
    `select p.sku, p.price::text as price, coalesce(p.attributes ->> 'currency', $3) as currency
       from labels.products p where p.store_id = $1 and p.sku = any ($2) order by p.sku`,
    [storeId, priced.map(({ sku }) => sku), storeCurrency],
  );
  for (const { sku, price, currency } of rows) {
    const problem = extraPlaces(price, currency);
    if (problem !== undefined)
      throw new TallymanError('BAD_OPTION', `the price ${price} of product "${sku}" ${problem}`);
  }
}

/** What is wrong with the places of an amount; undefined: nothing, or no currency is known. */
export const extraPlaces = (amount: string, currency: string | null | undefined): string | undefined =>
  currency ? placesProblem(amount, currency) : undefined;

/** The store's id and currency; locks the store against removal until the commit. */
async function holdStore(
  tx: Queryable,
  tenantId: string,
  code: string,
): Promise<{ readonly id: string; readonly currency: string | null }> {
  const { rows } = await tx.query<{ id: string; currency: string | null }>(
    'select id, currency from labels.stores where tenant_id = $1 and code = $2 for key share',
    [tenantId, code],
  );
  const [store] = rows;
  if (!store) throw new TallymanError('NOT_FOUND', `there is no store "${code}"`);
  return store;
}

function checkProducts(products: readonly ProductChange[]): void {
  if (products.length === 0 || products.length > mostProducts)
    throw new TallymanError(
      'BAD_OPTION',
      `give 1 to ${mostProducts} products at a time, not ${products.length}`,
    );
  const seen = new Set<string>();
  for (const product of products) {
    checkProduct(product);
    if (seen.has(product.sku))
      throw new TallymanError('BAD_OPTION', `product "${product.sku}" is given twice`);
    seen.add(product.sku);
  }
}

/** Throws if one product is invalid by itself. */
export function checkProduct({ sku, name, price, attributes }: ProductChange): void {
  requireText(sku, 'the SKU of a product', 64);
  if (name !== undefined) requireText(name, `the name of product "${sku}"`, 512);
  if (price !== undefined && price !== null && !/^\d{1,12}(\.\d{1,6})?$/.test(price))
    throw new TallymanError(
      'BAD_OPTION',
      `the price of product "${sku}" must be a number such as 1.99, got "${price.slice(0, 64)}"`,
    );
  const entries = Object.entries(attributes ?? {});
  if (entries.length > mostAttributes)
    throw new TallymanError('BAD_OPTION', `product "${sku}" has more than ${mostAttributes} attributes`);
  for (const [key, value] of entries) {
    if (!/^[A-Za-z][\w.-]{0,63}$/.test(key))
      throw new TallymanError(
        'BAD_OPTION',
        `product "${sku}": "${key.slice(0, 64)}" cannot name an attribute: expected letters, digits, "_", "." or "-"`,
      );
    if (value !== null && value !== '') requireText(value, `attribute "${key}" of product "${sku}"`, 2048);
  }
}
