import { z } from 'zod';
import type { DeadLetterFilter } from '../../engine/deadletters/dead-letters.ts';
import { TallymanError } from '../../engine/errors.ts';
import { given } from '../../given.ts';
import { operators, readers } from '../../host/roles.ts';
import { id, idParams, page, pageOf, route, text } from '../../host/route.ts';
import { jobError } from './jobs.ts';
import { deadLetterJson, pageJson, seenBy } from './json.ts';

const letterShape = z.object({
  id,
  tenant_id: z.string(),
  source: z.string(),
  queue: z.string(),
  kind: z.string(),
  entity_type: z.string(),
  entity_id: z.string(),
  attempts: z.number(),
  max_attempts: z.number(),
  redrives: z.number(),
  lane: z.string().nullable(),
  payload: z.unknown(),
  correlation_id: z.string(),
  first_failed_at: z.string(),
  last_failed_at: z.string(),
  last_error: jobError,
});

const filterShape = {
  queue: text(128).optional(),
  kind: text(128).optional(),
  lane: text(256).optional(),
  error_code: text(128).optional(),
  entity_type: text(128).optional(),
  entity_id: text(512).optional(),
  search: text(200).optional(),
};

type Filter = { readonly [K in keyof typeof filterShape]?: string | undefined };

const toFilter = ({ error_code, entity_type, entity_id, ...rest }: Filter): DeadLetterFilter =>
  given({ ...rest, errorCode: error_code, entityType: entity_type, entityId: entity_id });

/** The most dead letters per request, which is one transaction; `more` says whether there are more. */
const atOnce = 1000;

export const deadLetterRoutes = [
  route({
    method: 'GET',
    url: '/v1/dead-letters',
    action: 'dead_letters.list',
    summary: 'Dead letters, newest first',
    roles: readers,
    query: z.strictObject({ ...page, ...filterShape }),
    response: pageOf(letterShape),
    handle: async ({ services, caller, query: { limit, cursor, ...filter } }) => {
      const found = await services.deadLetters.list(toFilter(filter), given({ limit, cursor }));
      return pageJson(found, seenBy(caller, deadLetterJson));
    },
  }),
  route({
    method: 'GET',
    url: '/v1/dead-letters/:id',
    action: 'dead_letters.show',
    summary: 'One dead letter',
    roles: readers,
    params: idParams,
    response: letterShape,
    handle: async ({ services, params, caller }) => {
      const letter = await services.deadLetters.get(params.id);
      if (!letter) throw new TallymanError('NOT_FOUND', `there is no dead letter ${params.id}`);
      return seenBy(caller, deadLetterJson)(letter);
    },
  }),
  route({
    method: 'POST',
    url: '/v1/dead-letters/:id/redrive',
    action: 'dead_letters.redrive',
    summary: 'Run it again under the same id, with attempts reset to zero',
    roles: operators,
    params: idParams,
    body: z.strictObject({ to_head: z.boolean().optional() }).nullish(),
    status: 204,
    response: z.null(),
    handle: ({ services, params, body }) =>
      services.deadLetters.redrive(params.id, { toHead: body?.to_head === true }),
  }),
  route({
    method: 'POST',
    url: '/v1/dead-letters/:id/discard',
    action: 'dead_letters.discard',
    summary: 'Delete it for good',
    roles: operators,
    params: idParams,
    status: 204,
    response: z.null(),
    handle: async ({ services, params }) => {
      if ((await services.deadLetters.discard([params.id])) === 0)
        throw new TallymanError('NOT_FOUND', `there is no dead letter ${params.id}`);
    },
  }),
  route({
    method: 'POST',
    url: '/v1/dead-letters/redrive',
    action: 'dead_letters.redrive_many',
    summary: `Run again all that the filter matches, oldest first, ${atOnce} at the most; \`more\` says whether to ask again`,
    roles: operators,
    body: z.strictObject({ ...filterShape, to_head: z.boolean().optional() }),
    response: z.object({ redriven: z.number(), more: z.boolean() }),
    handle: async ({ services, body: { to_head, ...filter } }) => {
      const redriven = await services.deadLetters.redriveAll(toFilter(filter), {
        toHead: to_head === true,
        limit: atOnce,
      });
      return { redriven, more: redriven === atOnce };
    },
  }),
  route({
    method: 'POST',
    url: '/v1/dead-letters/discard',
    action: 'dead_letters.discard_many',
    summary: `Delete all that the filter matches, oldest first, ${atOnce} at the most; \`more\` says whether to ask again`,
    roles: operators,
    body: z.strictObject(filterShape),
    response: z.object({ discarded: z.number(), more: z.boolean() }),
    handle: async ({ services, body }) => {
      const discarded = await services.deadLetters.discardAll(toFilter(body), { limit: atOnce });
      return { discarded, more: discarded === atOnce };
    },
  }),
];
