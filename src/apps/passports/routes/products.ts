import { z } from 'zod';
import { given } from '../../../given.ts';
import { operators, readers } from '../../../host/roles.ts';
import { type AnyRoute, pageByNames, pageOf, route, text } from '../../../host/route.ts';
import { categories } from '../compile/types.ts';
import { listProducts, requireProduct, type StoredProduct } from '../store/products.ts';
import { putProduct } from '../write/products.ts';
import type { RouteTools } from './index.ts';
import { byProduct } from './shapes.ts';

const shape = z.object({
  id: z.string(),
  name: z.string(),
  category: z.enum(categories),
  gtin: z.string(),
  manufacturer: z.string(),
  manufacturer_id: z.string(),
  created_at: z.string(),
});

export const productJson = ({ manufacturerId, createdAt, ...product }: StoredProduct) => ({
  ...product,
  manufacturer_id: manufacturerId,
  created_at: createdAt,
});

export const productRoutes = ({ work }: RouteTools): readonly AnyRoute[] => [
  route({
    method: 'GET',
    url: '/v1/passports/products',
    action: 'passport_products.list',
    summary: 'Models of batteries, by id',
    roles: readers,
    query: z.strictObject(pageByNames),
    response: pageOf(shape),
    handle: async ({ scope, query }) => {
      const found = await listProducts(scope, given(query));
      return { items: found.items.map(productJson), next_cursor: found.nextCursor };
    },
  }),
  route({
    method: 'GET',
    url: '/v1/passports/products/:product',
    action: 'passport_products.show',
    summary: 'One model',
    roles: readers,
    params: byProduct,
    response: shape,
    handle: async ({ scope, params }) => productJson(await requireProduct(scope, params.product)),
  }),
  route({
    method: 'PUT',
    url: '/v1/passports/products/:product',
    action: 'passport_products.put',
    summary: 'Register a model of batteries, or change its names; GTIN and category stay',
    roles: operators,
    params: byProduct,
    body: z.strictObject({
      name: text(256),
      category: z.enum(categories),
      gtin: z.string().regex(/^\d{14}$/, { error: 'expected 14 digits' }),
      manufacturer: text(256),
      manufacturer_id: text(256),
    }),
    response: shape,
    handle: async (call) => {
      const { manufacturer_id: manufacturerId, ...body } = call.body;
      await putProduct(work(call), { id: call.params.product, ...body, manufacturerId });
      return productJson(await requireProduct(call.scope, call.params.product));
    },
  }),
];
