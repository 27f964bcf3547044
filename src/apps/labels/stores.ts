import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import { type Page, type PageRequest, pageOf, pageRequest } from '../../engine/paging.ts';
import { requireText } from '../../engine/validate.ts';
import type { SecretBox } from '../../secrets/box.ts';
import type { SealedColumn } from '../../secrets/reseal.ts';
import type { Change } from './changes/change.ts';
import { enqueueTasks, lockLabels } from './changes/tasks.ts';
import { type GatewaySettings, gatewaySettings } from './gateways/index.ts';
import { placesOf, placesProblem } from './render/index.ts';

/** A place with labels. Each store has its own products, because prices differ between stores. */
export interface Store {
  readonly id: string;
  readonly tenantId: string;
  readonly code: string;
  readonly name: string;
  readonly latestOnly: boolean;
  readonly currency: string | null;
  readonly locale: string | null;
  /** The other gateway settings are sealed. */
  readonly gatewayKind: string;
  readonly gatewayUrl: string;
  readonly createdAt: Date;
  readonly labels: number;
  readonly products: number;
}

export interface StoreSettings {
  /** The store's name in the API and the CLI; never changes. */
  readonly code: string;
  /** Default: the code. */
  readonly name?: string;
  /** A label with several waiting changes gets the last one only. Default false. */
  readonly latestOnly?: boolean;
  /** ISO 4217, such as EUR: `{{currency}}` in templates. */
  readonly currency?: string | null;
  /** BCP 47, such as de-DE: `{{locale}}` in templates. */
  readonly locale?: string | null;
  /** Required for a new store; without it a store keeps the one it has. */
  readonly gateway?: unknown;
}

const columns = `s.id, s.tenant_id as "tenantId", s.code, s.name, s.latest_only as "latestOnly", s.currency, s.locale,
  s.gateway_kind as "gatewayKind", s.gateway_url as "gatewayUrl", s.created_at as "createdAt",
  (select count(*)::int from labels.labels l where l.store_id = s.id) as labels,
  (select count(*)::int from labels.products p where p.store_id = s.id) as products`;

/** Settings sealed for one store open for no other. */
const contextOf = (tenantId: string, code: string): string => `label-store:${tenantId}:${code}`;

/** Creates or changes a store; fields that are not given stay. Labels get new images if the currency changes. */
export async function putStore(change: Change, box: SecretBox, given: StoreSettings): Promise<Store> {
  const { tx, tenantId } = change;
  const { code } = given;
  requireText(code, 'the code of a store', 64);
  if (given.name !== undefined) requireText(given.name, 'the name of a store', 256);
  checkFormats(given);
  const gateway = given.gateway === undefined ? undefined : checkGateway(given.gateway);
  const { rows } = await tx.query<{ id: string; currency: string | null; locale: string | null }>(
    'select id, currency, locale from labels.stores where tenant_id = $1 and code = $2 for no key update',
    [tenantId, code],
  );
  const [before] = rows;
  if (!before && !gateway)
    throw new TallymanError('BAD_OPTION', `store "${code}" is new: say how its gateway is reached`);
  const sealed = gateway && box.seal(JSON.stringify(gateway), contextOf(tenantId, code));
  await tx.query(
    `insert into labels.stores as s
       (tenant_id, code, name, latest_only, currency, locale, gateway_sealed, gateway_kind, gateway_url)
     values ($1, $2, coalesce($3, $2), coalesce($4, false), $5, $6, coalesce($9, ''), coalesce($10, ''), coalesce($11, ''))
     on conflict (tenant_id, code) do update
        set name = coalesce($3, s.name), latest_only = coalesce($4, s.latest_only),
            currency = case when $7 then $5 else s.currency end, locale = case when $8 then $6 else s.locale end,
            gateway_sealed = coalesce($9, s.gateway_sealed), gateway_kind = coalesce($10, s.gateway_kind),
            gateway_url = coalesce($11, s.gateway_url),
            gateway_version = s.gateway_version + case when $9::text is null then 0 else 1 end`,
    [
      tenantId,
      code,
      given.name ?? null,
      given.latestOnly ?? null,
      given.currency ?? null,
      given.locale ?? null,
      given.currency !== undefined,
      given.locale !== undefined,
      sealed ?? null,
      gateway?.kind ?? null,
      gateway?.url ?? null,
    ],
  );
  const store = await requireStore(tx, tenantId, code);
  if (before && store.currency !== null && before.currency !== store.currency)
    await requirePlaces(tx, store.id, store.currency);
  if (before && (before.currency !== store.currency || before.locale !== store.locale)) {
    const ids = await labelsOfStore(tx, store.id);
    await lockLabels(change, ids);
    await enqueueTasks(change, ids, ({ productId }) => productId !== null);
  }
  return store;
}

/** Where gateways' settings are kept. */
export const sealedInStores: SealedColumn = {
  table: 'labels.stores',
  keys: ['id'],
  also: ['tenant_id', 'code'],
  column: 'gateway_sealed',
  context: ({ tenant_id = '', code = '' }) => contextOf(tenant_id, code),
};

/** How a store's gateway is reached, password included; only for code that connects to it. */
export function openGateway(
  box: SecretBox,
  store: { readonly tenantId: string; readonly code: string; readonly sealed: string },
): GatewaySettings {
  return gatewaySettings.parse(JSON.parse(box.open(store.sealed, contextOf(store.tenantId, store.code))));
}

export async function requireStore(on: Queryable, tenantId: string, code: string): Promise<Store> {
  const { rows } = await on.query<Store>(
    `select ${columns} from labels.stores s where s.tenant_id = $1 and s.code = $2`,
    [tenantId, code],
  );
  const [store] = rows;
  if (!store) throw new TallymanError('NOT_FOUND', `there is no store "${code}"`);
  return store;
}

/** Newest first. */
export async function listStores(
  on: Queryable,
  tenantId: string,
  page: PageRequest = {},
): Promise<Page<Store>> {
  const { limit, fetchLimit, cursor } = pageRequest(page);
  const { rows } = await on.query<Store>(
    `select ${columns} from labels.stores s
      where s.tenant_id = $1 and ($2::bigint is null or s.id < $2) order by s.id desc limit $3`,
    [tenantId, cursor, fetchLimit],
  );
  return pageOf(rows, limit);
}

/** Removes its products, too. Refuses a store that still has labels. */
export async function removeStore({ tx, tenantId }: Change, code: string): Promise<void> {
  const { rows } = await tx.query<{ id: string }>(
    'select id from labels.stores where tenant_id = $1 and code = $2 for update',
    [tenantId, code],
  );
  const [store] = rows;
  if (!store) throw new TallymanError('NOT_FOUND', `there is no store "${code}"`);
  const labels = (await labelsOfStore(tx, store.id)).length;
  if (labels > 0)
    throw new TallymanError('BAD_STATE', `store "${code}" has ${labels} labels; remove those first`);
  await tx.query('delete from labels.products where store_id = $1', [store.id]);
  await tx.query('delete from labels.stores where id = $1', [store.id]);
}

/** Relies on labels_of_store. */
export async function labelsOfStore(on: Queryable, storeId: string): Promise<string[]> {
  const { rows } = await on.query<{ id: string }>('select id from labels.labels where store_id = $1', [
    storeId,
  ]);
  return rows.map(({ id }) => id);
}

/** Prices of the store must be amounts of its currency. */
async function requirePlaces(tx: Queryable, storeId: string, currency: string): Promise<void> {
  const { rows } = await tx.query<{ sku: string; price: string }>(
    `select sku, price::text as price from labels.products
      where store_id = $1 and scale(price) > $2 and not attributes ? 'currency' order by sku limit 1`,
    [storeId, placesOf(currency)],
  );
  const [product] = rows;
  if (product)
    throw new TallymanError(
      'BAD_STATE',
      `the currency cannot be ${currency}: the price ${product.price} of product "${product.sku}" ${placesProblem(product.price, currency)}`,
    );
}

function checkFormats({ currency, locale }: StoreSettings): void {
  if (typeof currency === 'string' && !/^[A-Z]{3}$/.test(currency))
    throw new TallymanError('BAD_OPTION', `"${currency}" is not a currency: expected a code such as EUR`);
  if (typeof locale === 'string' && !isLocale(locale))
    throw new TallymanError('BAD_OPTION', `"${locale}" is not a locale: expected one such as de-DE`);
}

function isLocale(text: string): boolean {
  try {
    return Intl.getCanonicalLocales(text).length === 1;
  } catch {
    return false;
  }
}

function checkGateway(given: unknown): GatewaySettings {
  const checked = gatewaySettings.safeParse(given);
  if (checked.success) return checked.data;
  const [issue] = checked.error.issues;
  throw new TallymanError(
    'BAD_OPTION',
    `gateway${issue?.path.map((part) => `.${String(part)}`).join('') ?? ''}: ${issue?.message}`,
  );
}
