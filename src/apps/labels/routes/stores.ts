import { z } from 'zod';
import { given } from '../../../given.ts';
import { settingsOf } from '../../../host/app.ts';
import { admins, operators, producers, readers } from '../../../host/roles.ts';
import { type Call, id, page, pageOf, recordOf, route, text } from '../../../host/route.ts';
import { checkUrl } from '../../../network/url.ts';
import { labelsKeys } from '../config.ts';
import { gatewayPolicies } from '../gateways/index.ts';
import { aimsSettings, openEPaperLinkSettings } from '../gateways/settings.ts';
import {
  listProducts,
  listStores,
  type Product,
  productsIn,
  putProducts,
  putStore,
  removeProducts,
  removeStore,
  requireProduct,
  requireStore,
  resync,
  type Store,
} from '../index.ts';
import { mostAttributes } from '../products.ts';

/** A change of labels, in the transaction of its request. */
export const changeOf = ({
  scope,
  correlationId,
}: Pick<Call<unknown, unknown, unknown>, 'scope' | 'correlationId'>) => ({
  tx: scope,
  tenantId: scope.tenantId,
  correlationId,
  drawsOutside: true,
});

const storeShape = z.object({
  id,
  code: z.string(),
  name: z.string(),
  latest_only: z.boolean(),
  currency: z.string().nullable(),
  locale: z.string().nullable(),
  gateway: z.object({ kind: z.string(), url: z.string() }),
  created_at: z.string(),
  labels: z.number(),
  products: z.number(),
});

const storeJson = (store: Store) => ({
  id: store.id,
  code: store.code,
  name: store.name,
  latest_only: store.latestOnly,
  currency: store.currency,
  locale: store.locale,
  gateway: { kind: store.gatewayKind, url: store.gatewayUrl },
  created_at: store.createdAt,
  labels: store.labels,
  products: store.products,
});

const productShape = z.object({
  id,
  sku: z.string(),
  name: z.string(),
  price: z.string().nullable(),
  attributes: z.record(z.string(), z.string()),
  updated_at: z.string(),
});

const productJson = (product: Product) => ({
  id: product.id,
  sku: product.sku,
  name: product.name,
  price: product.price,
  attributes: product.attributes,
  updated_at: product.updatedAt,
});

const timeout_ms = aimsSettings.shape.timeoutMs;
const gateway = z.discriminatedUnion('kind', [
  aimsSettings.omit({ timeoutMs: true }).extend({ timeout_ms }),
  openEPaperLinkSettings.omit({ timeoutMs: true }).extend({ timeout_ms }),
]);

const toSettings = ({ timeout_ms: timeoutMs, ...settings }: z.output<typeof gateway>) => ({
  ...settings,
  timeoutMs,
});

const product = z.strictObject({
  sku: text(64),
  name: text(512).optional(),
  price: z
    .string()
    .regex(/^\d{1,12}(\.\d{1,6})?$/, { error: 'expected a number as text, such as "1.99"' })
    .nullable()
    .optional(),
  attributes: recordOf(mostAttributes, text(64), z.string().max(2048).nullable())
    .optional()
    .describe('Added to those it has; null takes one away'),
});

const byCode = z.strictObject({ code: text(64) });
const bySku = z.strictObject({ code: text(64), sku: text(64) });

export const storeRoutes = [
  route({
    method: 'GET',
    url: '/v1/stores',
    action: 'stores.list',
    summary: 'Stores with shelf labels, newest first',
    roles: readers,
    query: z.strictObject(page),
    response: pageOf(storeShape),
    handle: async ({ scope, query }) => {
      const found = await listStores(scope, scope.tenantId, given(query));
      return { items: found.items.map(storeJson), next_cursor: found.nextCursor };
    },
  }),
  route({
    method: 'PUT',
    url: '/v1/stores/:code',
    action: 'stores.put',
    summary: 'Make a store, or change it; what is not named stays. The gateway’s password is not shown again',
    roles: admins,
    params: byCode,
    body: z.strictObject({
      name: text(256).optional(),
      latest_only: z.boolean().optional().describe('A label with several waiting changes gets the last one'),
      currency: text(3).nullable().optional(),
      locale: text(35).nullable().optional(),
      gateway: gateway.optional(),
    }),
    response: storeShape,
    handle: async (call) => {
      const { name, latest_only, currency, locale, gateway } = call.body;
      if (gateway)
        checkUrl(
          gateway.url,
          gatewayPolicies(settingsOf(labelsKeys, call.services.host.config))(call.caller.tenantId),
        );
      const store = await putStore(changeOf(call), call.services.host.secrets, {
        code: call.params.code,
        ...given({ name, latestOnly: latest_only, currency, locale }),
        ...(gateway && { gateway: toSettings(gateway) }),
      });
      return storeJson(store);
    },
  }),
  route({
    method: 'GET',
    url: '/v1/stores/:code',
    action: 'stores.show',
    summary: 'One store',
    roles: readers,
    params: byCode,
    response: storeShape,
    handle: async ({ scope, params }) => storeJson(await requireStore(scope, scope.tenantId, params.code)),
  }),
  route({
    method: 'DELETE',
    url: '/v1/stores/:code',
    action: 'stores.remove',
    summary: 'Remove a store that has no labels, with its products',
    roles: admins,
    params: byCode,
    status: 204,
    response: z.null(),
    handle: (call) => removeStore(changeOf(call), call.params.code),
  }),
  route({
    method: 'POST',
    url: '/v1/stores/:code/resync',
    action: 'stores.resync',
    summary: 'Push again what all labels of a store should show',
    roles: operators,
    params: byCode,
    status: 202,
    response: z.object({ labels: z.number() }),
    handle: async (call) => ({ labels: await resync(changeOf(call), { store: call.params.code }) }),
  }),
  route({
    method: 'GET',
    url: '/v1/stores/:code/products',
    action: 'products.list',
    summary: 'Products of a store, newest first',
    roles: readers,
    params: byCode,
    query: z.strictObject(page),
    response: pageOf(productShape),
    handle: async ({ scope, params, query }) => {
      await requireStore(scope, scope.tenantId, params.code);
      const found = await listProducts(scope, scope.tenantId, params.code, given(query));
      return { items: found.items.map(productJson), next_cursor: found.nextCursor };
    },
  }),
  route({
    method: 'POST',
    url: '/v1/stores/:code/products',
    action: 'products.put',
    summary:
      'Make products or change them, all of them or none, as JSON or as text/csv (first line: sku, name, price, …); labels that show them get new images',
    roles: producers,
    params: byCode,
    body: z.union([
      z.strictObject({ products: z.array(product).min(1).max(1000) }),
      z.string().min(1).describe('text/csv'),
    ]),
    consumes: ['text/csv'],
    response: z.object({
      made: z.number(),
      changed: z.number(),
      unchanged: z.number(),
      labels: z.number().describe('Labels that get a new image'),
    }),
    handle: async (call) => {
      const { body, params } = call;
      const products = typeof body === 'string' ? await productsIn(body) : body.products;
      return putProducts(
        changeOf(call),
        params.code,
        products.map(({ sku, ...fields }) => ({ sku, ...given(fields) })),
      );
    },
  }),
  route({
    method: 'GET',
    url: '/v1/stores/:code/products/:sku',
    action: 'products.show',
    summary: 'One product',
    roles: readers,
    params: bySku,
    response: productShape,
    handle: async ({ scope, params }) =>
      productJson(await requireProduct(scope, scope.tenantId, params.code, params.sku)),
  }),
  route({
    method: 'DELETE',
    url: '/v1/stores/:code/products/:sku',
    action: 'products.remove',
    summary: 'Remove a product that no label shows',
    roles: operators,
    params: bySku,
    status: 204,
    response: z.null(),
    handle: (call) => removeProducts(changeOf(call), call.params.code, [call.params.sku]),
  }),
];
