import { z } from 'zod';
import { TallymanError } from '../../../engine/errors.ts';
import { given } from '../../../given.ts';
import { guests, operators, producers, readers } from '../../../host/roles.ts';
import { type AnyRoute, pageOf, route, text, timestamp } from '../../../host/route.ts';
import type { TenantQueries } from '../../../host/timeline.ts';
import { readerOf } from '../access.ts';
import {
  type BatteryStatus,
  batteryStatuses,
  type JsonObject,
  type Reader,
  readerPoints,
} from '../compile/types.ts';
import { notFound, passportError } from '../errors.ts';
import { publishedLinks, publishedVersion } from '../public/find.ts';
import {
  type ItemEvent,
  itemEventsOf,
  listPassports,
  predecessorsOf,
  type RelatedItem,
  requirePassport,
  type StoredPassport,
  successorsOf,
} from '../store/index.ts';
import { appendItemEvent } from '../write/item-events.ts';
import { addItems, addPredecessors, ceaseItem, setItemStatus } from '../write/passports.ts';
import type { RouteTools } from './index.ts';
import { ItemUploads } from './item-uploads.ts';
import { badFile, byId, byProduct, formatOf, pageByUuids, tableTypes, uuid } from './shapes.ts';

const shape = z.object({
  id: uuid,
  product_id: z.string(),
  gtin: z.string(),
  serial: z.string().nullable().describe('Null for the passport of the model'),
  active_version_id: uuid.nullable().describe('The version that counts now, if one does'),
  created_at: z.string(),
  manufactured_on: z.string().nullable(),
  manufactured_at: z.string().nullable(),
  status: z.enum(batteryStatuses).optional().describe('For readers of access point 4'),
  ceased_at: z.string().nullable(),
  ceased_reason: z.string().nullable().optional().describe('For the issuer'),
});

/** What the reader may see of it: the status of a battery is of access point 4. */
export const passportJson = (passport: StoredPassport, reader: Reader = 'owner') => {
  const { item } = passport;
  return {
    id: passport.id,
    product_id: passport.productId,
    gtin: passport.gtin,
    serial: passport.serial,
    active_version_id: passport.activeVersionId,
    created_at: passport.createdAt,
    manufactured_on: item?.manufacturedOn ?? null,
    manufactured_at: item?.manufacturedAt ?? null,
    ...(item && readerPoints[reader].includes(4) && { status: item.status }),
    ceased_at: item?.ceasedAt ?? null,
    ...(reader === 'owner' && { ceased_reason: item?.ceasedReason ?? null }),
  };
};

const related = z.object({ passport_id: uuid, gtin: z.string(), serial: z.string() });
const relatedJson = ({ passportId, gtin, serial }: RelatedItem) => ({
  passport_id: passportId,
  gtin,
  serial,
});

/** With the batteries that it was made from, and that were made from it. */
export const passportDetailsJson = (
  passport: StoredPassport,
  { predecessors, successors }: Readonly<Record<'predecessors' | 'successors', readonly RelatedItem[]>>,
  reader: Reader = 'owner',
) => ({
  ...passportJson(passport, reader),
  predecessors: predecessors.map(relatedJson),
  successors: successors.map(relatedJson),
});

/** For readers outside: a passport that never had an active version is none. */
async function requirePublished(on: TenantQueries, id: string): Promise<void> {
  if (!(await publishedVersion(on, id, { current: true }))) throw notFound('passport', id);
}

/** Of the batteries that were made from one, those whose own passports have been published. */
async function publishedOf(
  on: TenantQueries,
  related: readonly RelatedItem[],
): Promise<readonly RelatedItem[]> {
  const links = new Set((await publishedLinks(on, related)).map(({ gtin, serial }) => `${gtin}/${serial}`));
  return related.filter(({ gtin, serial }) => links.has(`${gtin}/${serial}`));
}

/** After recycling a tombstone is all that is left for readers outside; the issuer keeps its records. */
export function requireExisting({ id, item }: StoredPassport): void {
  if (item?.ceasedAt)
    throw passportError('PASSPORT_NOT_ACTIVE', `passport ${id} has ceased: there is nothing left to read`, {
      state: 'CEASED',
    });
}

const eventShape = z.object({
  passport_id: uuid,
  seq: z.number(),
  type: z.string(),
  occurred_at: z.string(),
  data: z.record(z.string(), z.unknown()),
  content: z.string().describe('Canonical JSON of everything that is signed'),
  hash: z.string(),
  signing_key: z.string(),
  signature: z.string().describe('Ed25519 over the 32 bytes of the hash, base64url'),
  created_at: z.string(),
});

export const itemEventJson = (event: ItemEvent) => ({
  passport_id: event.passportId,
  seq: event.seq,
  type: event.type,
  occurred_at: event.occurredAt,
  data: event.data,
  content: event.content,
  hash: event.hash,
  signing_key: event.signingKey,
  signature: Buffer.from(event.signature).toString('base64url'),
  created_at: event.createdAt,
});

export const passportNounRoutes = ({ means, work }: RouteTools): readonly AnyRoute[] => {
  const uploads = new ItemUploads(means.documentLimits);
  /** A change of one battery, which answers the battery. */
  const change = <B extends z.ZodType>(
    verb: string,
    summary: string,
    body: B,
    apply: (on: ReturnType<RouteTools['work']>, id: string, given: z.output<B>) => Promise<void>,
  ): AnyRoute =>
    route({
      method: 'POST',
      url: `/v1/passports/items/:id/${verb}`,
      action: `passports.${verb}`,
      summary,
      roles: operators,
      params: byId,
      body,
      response: shape,
      handle: async (call) => {
        const { id } = call.params;
        await apply(work(call), id, call.body as z.output<B>);
        return passportJson(await requirePassport(call.scope, id));
      },
    });
  return [
    route({
      method: 'GET',
      url: '/v1/passports',
      action: 'passports.list',
      summary: 'Passports of models and of batteries, by id',
      roles: readers,
      query: z.strictObject({
        ...pageByUuids,
        product: text(128).optional(),
        serial: text(20).optional(),
      }),
      response: pageOf(shape),
      handle: async ({ scope, query: { limit, cursor, product, serial } }) => {
        const filter = given({ productId: product, serial });
        const found = await listPassports(scope, filter, given({ limit, cursor }));
        return { items: found.items.map((each) => passportJson(each)), next_cursor: found.nextCursor };
      },
    }),
    route({
      method: 'GET',
      url: '/v1/passports/:id',
      action: 'passports.show',
      summary: 'One passport, with the batteries that it was made from and that were made from it',
      roles: [...readers, ...guests],
      params: byId,
      response: shape.extend({ predecessors: z.array(related), successors: z.array(related) }),
      handle: async ({ scope, params, caller }) => {
        const passport = await requirePassport(scope, params.id);
        const reader = readerOf(caller);
        const isOwner = reader === 'owner';
        if (!isOwner) await requirePublished(scope, params.id);
        const predecessors = await predecessorsOf(scope, params.id);
        const made = await successorsOf(scope, params.id);
        const successors = isOwner ? made : await publishedOf(scope, made);
        return passportDetailsJson(passport, { predecessors, successors }, reader);
      },
    }),
    route({
      method: 'POST',
      url: '/v1/passports/products/:product/items',
      action: 'passport_items.add',
      summary:
        'Register batteries of a model, as CSV or JSON: serial, manufactured_on, manufactured_at, status; all of them or none',
      roles: producers,
      params: byProduct,
      upload: { types: tableTypes, maxBytes: means.documentLimits.maxBytes },
      response: z.object({
        added: z.number(),
        existing: z.array(z.string()).describe('Serial numbers that were there already; nothing was changed'),
      }),
      handle: async (call) => {
        const format = formatOf(call.headers['content-type']);
        const parsed = uploads.read({ format, bytes: call.bytes });
        if (!parsed.ok) throw badFile(parsed.problems);
        return addItems(work(call), call.params.product, parsed.items);
      },
    }),
    change(
      'status',
      'Change the status of a battery; request a new version to publish it',
      z.strictObject({ status: z.enum(batteryStatuses) }),
      (on, id, { status }) => setItemStatus(on, id, status as BatteryStatus),
    ),
    change(
      'predecessors',
      'Name batteries that this one was made from',
      z.strictObject({ predecessors: z.array(uuid).min(1).max(1000) }),
      (on, id, { predecessors }) => addPredecessors(on, id, predecessors),
    ),
    change(
      'cease',
      'Let a passport cease after recycling: its address answers with a tombstone from now on, for good',
      z.strictObject({ reason: text(2000) }),
      (on, id, { reason }) => ceaseItem(on, id, reason),
    ),
    route({
      method: 'POST',
      url: '/v1/passports/items/:id/events',
      action: 'passport_events.append',
      summary:
        'Append individual data of a battery: state of health, cycles, an accident; signed and never changed',
      roles: producers,
      params: byId,
      body: z.strictObject({
        type: text(64),
        occurred_at: timestamp,
        data: z
          .record(z.string(), z.unknown())
          .describe('Whole numbers only; a decimal is {value, scale, unit}. At most 16 KiB of JSON'),
        key: text(256).optional().describe('The same key again adds nothing'),
      }),
      status: 201,
      response: z.object({ seq: z.number() }),
      handle: async (call) => {
        const { type, occurred_at: occurredAt, data, key } = call.body;
        const seq = await appendItemEvent(work(call), means.keys, call.params.id, {
          type,
          occurredAt,
          data: data as JsonObject,
          ...given({ key }),
        });
        return { seq };
      },
    }),
    route({
      method: 'GET',
      url: '/v1/passports/items/:id/events',
      action: 'passport_events.list',
      summary: 'Individual data of a battery, newest first; for readers of access point 4',
      roles: [...readers, ...guests],
      params: byId,
      query: z.strictObject({
        limit: z.coerce.number().int().min(1).max(200).default(50),
        cursor: z.coerce.number().int().min(1).max(2_147_483_647).optional(),
      }),
      response: pageOf(eventShape),
      handle: async ({ scope, params, query: { limit, cursor }, caller }) => {
        const reader = readerOf(caller);
        if (!readerPoints[reader].includes(4))
          throw new TallymanError(
            'FORBIDDEN',
            'individual data of a battery are for people with a legitimate interest (Annex XIII, point 4)',
          );
        const passport = await requirePassport(scope, params.id);
        if (reader !== 'owner') {
          await requirePublished(scope, params.id);
          requireExisting(passport);
        }
        const found = await itemEventsOf(scope, params.id, {
          limit: limit + 1,
          ...given({ before: cursor }),
        });
        const items = found.slice(0, limit);
        const last = items.at(-1);
        return {
          items: items.map(itemEventJson),
          next_cursor: found.length > limit && last ? String(last.seq) : null,
        };
      },
    }),
  ];
};
