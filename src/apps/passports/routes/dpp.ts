import { z } from 'zod';
import { homeTenant } from '../../../host/roles.ts';
import { type AnyRoute, type Call, Reply, route, text } from '../../../host/route.ts';
import { readerOf } from '../access.ts';
import { type Representation, representations } from '../dpp/document.ts';
import { parsePath, valueAt } from '../dpp/path.ts';
import { withheldPoint } from '../dpp/withheld.ts';
import { labelLink } from '../page/disclosure.ts';
import { publishedLinks, tenantOf, type Wanted } from '../public/find.ts';
import { type LinkedItem, parseLink, parseName } from '../public/link.ts';
import type { RouteTools } from './index.ts';

/*
 * The reads of EN 18222. A passport's id is the link on its label; its UUID does, too. Answers are documents of EN 18223,
 * filtered for the reader; what goes wrong is answered with the standard's result object.
 */

const why = 'the public part of a passport is for everybody; a key shows what its holder may see beyond it';
const named = {
  why,
  tenantOf: async (on: Parameters<typeof tenantOf>[0], { params }: { readonly params: unknown }) => {
    const name = parseName((params as { readonly id: string }).id);
    // The handler answers in the form of the standard that there is none.
    return (name && (await tenantOf(on, name))) ?? homeTenant;
  },
};
const byId = z.strictObject({
  id: text(1024).describe('The link on the label, percent-encoded, or the UUID'),
});
const form = { representation: z.enum(representations).default('compressed') };
const document = z.looseObject({ digitalProductPassportId: z.string(), dppStatus: z.string() });

/** More ids than this are answered page by page. */
const mostIds = 100;
const manyIds = z.array(text(1024)).max(1000);

export function dppRoutes({ answers, means: { origin } }: RouteTools): readonly AnyRoute[] {
  const read = async (
    call: Pick<
      Call<{ readonly id: string }, unknown, unknown>,
      'params' | 'caller' | 'scope' | 'correlationId'
    >,
    wanted: Wanted,
    representation: Representation,
  ): Promise<Reply> => {
    const name = parseName(call.params.id);
    const found = name && (await answers.find(call.scope, name, wanted));
    const asked = { reader: readerOf(call.caller), representation };
    const text = found && (await answers.document(call.scope, found, asked));
    return text === undefined ? notFound(call) : json(text, call);
  };
  const element = async (
    call: Pick<
      Call<{ readonly id: string }, unknown, unknown>,
      'params' | 'caller' | 'scope' | 'correlationId'
    >,
    path: string,
  ): Promise<Reply> => {
    const steps = parsePath(path);
    if (!steps)
      return badRequest(`"${path}" is no path to one element, such as $.performance.ratedCapacity`, call);
    const name = parseName(call.params.id);
    const found = name && (await answers.find(call.scope, name, { current: true }));
    const elements = found && (await answers.elements(call.scope, found, readerOf(call.caller)));
    if (!elements) return notFound(call);
    const value = valueAt(elements.document, steps);
    if (value !== undefined) return json(JSON.stringify(value), call);
    const point = withheldPoint(elements.withheld, steps);
    return point === undefined
      ? notFound(call, `there is no element ${path}, or it has no value`)
      : result(403, 'ClientForbidden', `${path} is withheld: Annex XIII, point ${point}`, call);
  };
  return [
    route({
      method: 'GET',
      url: '/v1/dpps/:id',
      action: 'dpps.read',
      summary: 'ReadDPPById (EN 18222): the passport as it is now',
      roles: [],
      public: named,
      params: byId,
      query: z.strictObject(form),
      response: document,
      handle: (call) => read(call, { current: true }, call.query.representation),
    }),
    route({
      method: 'GET',
      url: '/v1/dppsByProductId/:id',
      action: 'dpps.by_product',
      summary:
        'ReadDPPByProductId (EN 18222): the passport of a model or of one battery, by its product identifier',
      roles: [],
      public: named,
      params: byId,
      query: z.strictObject(form),
      response: document,
      handle: (call) => read(call, { current: true }, call.query.representation),
    }),
    route({
      method: 'GET',
      url: '/v1/dppsByIdAndDate/:id',
      action: 'dpps.by_date',
      summary: 'ReadDPPVersionByIdAndDate (EN 18222): the version that counted at a time',
      roles: [],
      public: named,
      params: byId,
      query: z.strictObject({ ...form, date: text(64).describe('RFC 3339, such as 2027-03-01T00:00:00Z') }),
      response: document,
      handle: async (call) => {
        const { data: at } = z.iso.datetime({ offset: true }).safeParse(call.query.date);
        return at === undefined
          ? badRequest(`"${call.query.date}" is no time such as 2027-03-01T00:00:00Z`, call)
          : read(call, { at: new Date(at) }, call.query.representation);
      },
    }),
    route({
      method: 'POST',
      url: '/v1/dppsByProductIds',
      action: 'dpps.by_products',
      summary: 'ReadDPPIdsByProductIds (EN 18222): the ids of the passports of several products',
      roles: [],
      readsOnly: true,
      // Products of several tenants may be asked for; the answer has nothing but their links.
      home: true,
      public: {
        why: 'whether there is a passport is what the code on the battery says',
        tenantOf: async () => homeTenant,
      },
      query: z.strictObject({
        limit: z.coerce.number().int().min(1).max(mostIds).default(mostIds),
        cursor: z
          .string()
          .regex(/^\d{1,4}$/, { error: 'expected the nextCursor of an answer' })
          .optional(),
      }),
      body: z.union([manyIds, z.strictObject({ productIds: manyIds })]),
      response: z.object({ dppIds: z.array(z.string()), nextCursor: z.string().nullable() }),
      handle: async (call) => {
        const { limit, cursor } = call.query;
        const ids = Array.isArray(call.body) ? call.body : call.body.productIds;
        const start = Number(cursor ?? 0);
        const links = ids.slice(start, start + limit).map(parseLink);
        const wrong = links.indexOf(undefined);
        if (wrong !== -1)
          return badRequest(
            `"${ids[start + wrong]}" (number ${start + wrong + 1}) is no GS1 Digital Link of a product`,
            call,
          );
        const found = await publishedLinks(call.scope, links as readonly LinkedItem[]);
        return {
          dppIds: found.map(({ gtin, serial }) => labelLink(origin, gtin, serial)),
          nextCursor: start + limit < ids.length ? String(start + limit) : null,
        };
      },
    }),
    route({
      method: 'GET',
      url: '/v1/dpps/:id/elements/:path',
      action: 'dpps.element',
      summary: 'ReadDataElement (EN 18222): one element, by a JSONPath such as $.performance.ratedCapacity',
      roles: [],
      public: named,
      params: byId.extend({ path: text(1024) }),
      response: z.unknown(),
      handle: (call) => element(call, call.params.path),
    }),
    route({
      method: 'GET',
      url: '/v1/dpps/:id/elements/:group/:name',
      action: 'dpps.element_of',
      summary: 'ReadDataElement (EN 18222), with the path as two names',
      roles: [],
      public: named,
      params: byId.extend({ group: text(256), name: text(256) }),
      response: z.unknown(),
      handle: (call) => element(call, `${call.params.group}/${call.params.name}`),
    }),
  ];
}

type AnyCall = Pick<Call<unknown, unknown, unknown>, 'correlationId' | 'caller'>;

const json = (text: string, { caller }: AnyCall): Reply =>
  new Reply('application/json; charset=utf-8', text, {
    headers: {
      vary: 'Authorization',
      'cache-control':
        readerOf(caller) === 'public' ? 'public, max-age=60, must-revalidate' : 'private, no-store',
    },
  });

/** The result object of EN 18222. */
const result = (status: number, statusCode: string, message: string, { correlationId }: AnyCall): Reply =>
  new Reply(
    'application/json; charset=utf-8',
    JSON.stringify({
      statusCode,
      message: [{ messageType: 'Error', text: message, correlationId, timestamp: new Date().toISOString() }],
    }),
    { status, headers: { 'cache-control': 'no-store' } },
  );

const notFound = (
  call: AnyCall,
  message = 'there is no passport of this id, or none that is in force yet',
): Reply => result(404, 'ClientErrorResourceNotFound', message, call);
const badRequest = (message: string, call: AnyCall): Reply =>
  result(400, 'ClientErrorBadRequest', message, call);
