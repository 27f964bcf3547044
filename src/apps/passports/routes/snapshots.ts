import { z } from 'zod';
import { given } from '../../../given.ts';
import { operators, readers } from '../../../host/roles.ts';
import { type AnyRoute, pageOf, route, text } from '../../../host/route.ts';
import {
  documentsOfSnapshot,
  listSnapshots,
  requireSnapshot,
  type StoredSnapshot,
  snapshotStates,
} from '../store/index.ts';
import { rebuildSnapshot, requestSnapshot } from '../write/snapshots.ts';
import type { RouteTools } from './index.ts';
import { byId, byProduct, failureShape, hash, pageByUuids, uuid } from './shapes.ts';

const shape = z.object({
  id: uuid,
  product_id: z.string(),
  state: z.enum(snapshotStates).describe('FAILED: it could not be built, `error` says why'),
  hash: hash.nullable(),
  fact_count: z.number().nullable(),
  error: failureShape.nullable(),
  created_at: z.string(),
  sealed_at: z.string().nullable(),
});

export const snapshotJson = (snapshot: StoredSnapshot) => ({
  id: snapshot.id,
  product_id: snapshot.productId,
  state: snapshot.state,
  hash: snapshot.hash,
  fact_count: snapshot.factCount,
  error: snapshot.error,
  created_at: snapshot.createdAt,
  sealed_at: snapshot.sealedAt,
});

export const snapshotRoutes = ({ work }: RouteTools): readonly AnyRoute[] => [
  route({
    method: 'POST',
    url: '/v1/passports/products/:product/snapshots',
    action: 'passport_snapshots.build',
    summary: 'Seal the facts of all validated documents of a model into a snapshot, in the background',
    roles: operators,
    params: byProduct,
    status: 202,
    response: shape,
    handle: async (call) => {
      const id = await requestSnapshot(work(call), call.params.product);
      return snapshotJson(await requireSnapshot(call.scope, id));
    },
  }),
  route({
    method: 'POST',
    url: '/v1/passports/snapshots/:id/build',
    action: 'passport_snapshots.rebuild',
    summary:
      'Build a snapshot again that has FAILED, in the background; what was to be issued from it follows',
    roles: operators,
    params: byId,
    status: 202,
    response: shape,
    handle: async (call) => {
      await rebuildSnapshot(work(call), call.params.id);
      return snapshotJson(await requireSnapshot(call.scope, call.params.id));
    },
  }),
  route({
    method: 'GET',
    url: '/v1/passports/snapshots',
    action: 'passport_snapshots.list',
    summary: 'Snapshots, by id',
    roles: readers,
    query: z.strictObject({ ...pageByUuids, product: text(128).optional() }),
    response: pageOf(shape),
    handle: async ({ scope, query: { limit, cursor, product } }) => {
      const found = await listSnapshots(scope, given({ productId: product }), given({ limit, cursor }));
      return { items: found.items.map(snapshotJson), next_cursor: found.nextCursor };
    },
  }),
  route({
    method: 'GET',
    url: '/v1/passports/snapshots/:id',
    action: 'passport_snapshots.show',
    summary: 'One snapshot, and the versions of documents that it was made from',
    roles: readers,
    params: byId,
    response: shape.extend({
      documents: z.array(z.object({ id: uuid, name: z.string(), number: z.number(), sha256: hash })),
    }),
    handle: async ({ scope, params }) => {
      const snapshot = await requireSnapshot(scope, params.id);
      const documents = await documentsOfSnapshot(scope, params.id);
      return {
        ...snapshotJson(snapshot),
        documents: documents.map(({ id, name, number, sha256 }) => ({ id, name, number, sha256 })),
      };
    },
  }),
];
