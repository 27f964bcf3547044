/** Time line and search: each app answers for its own subjects, and the answers are merged here. */
import { z } from 'zod';
import { TallymanError } from '../../engine/errors.ts';
import { Jobs } from '../../engine/jobs/jobs.ts';
import { pageByName } from '../../engine/paging.ts';
import { given } from '../../given.ts';
import type { App } from '../../host/app.ts';
import { anyone, readers } from '../../host/roles.ts';
import { type AnyRoute, pageByNames, pageOf, route, text } from '../../host/route.ts';
import type { Moment, Subject, SubjectPage, TenantQueries } from '../../host/timeline.ts';
import { pageJson } from './json.ts';

const momentShape = z.object({
  id: z.string(),
  type: z.string(),
  at: z.string(),
  text: z.string(),
  details: z.record(z.string(), z.unknown()),
});

const subjectShape = z.object({ type: z.string(), id: z.string(), title: z.string().optional() });

type Teller = (on: TenantQueries, subject: Subject, page: SubjectPage) => Promise<readonly Moment[]>;

export function subjectRoutes(apps: readonly App[]): readonly AnyRoute[] {
  const tellers: readonly Teller[] = [momentsOfJob, ...apps.flatMap(({ timeline }) => timeline ?? [])];
  return [
    route({
      method: 'GET',
      url: '/v1/timeline/:subject',
      action: 'timeline.read',
      summary:
        'What happened to one thing, newest first: `basket:EPC`, `label:MAC`, `shipment:NUMBER`, `fact:MESSAGE-ID`, `job:ID`',
      roles: readers,
      params: z.strictObject({ subject: text(600) }),
      query: z.strictObject({
        limit: z.coerce.number().int().min(1).max(200).default(50),
        cursor: z.iso.datetime({ offset: true }).optional().describe('`next_cursor` of the page before'),
        before: z.iso.datetime({ offset: true }).optional().describe('The same under its former name'),
      }),
      response: pageOf(momentShape).extend({
        next_before: z.string().nullable().describe('The same as `next_cursor`, under its former name'),
      }),
      handle: async ({ scope, params, query: { limit, cursor, before = cursor } }) => {
        const subject = subjectOf(params.subject);
        const page = { limit: limit + 1, ...(before !== undefined && { before: { at: new Date(before) } }) };
        const found: Moment[] = [];
        // One after another: a request has one connection.
        for (const tell of tellers) found.push(...(await tell(scope, subject, page)));
        return pageOfMoments(found, limit);
      },
    }),
    route({
      method: 'GET',
      url: '/v1/search',
      action: 'search.read',
      summary: 'Things whose name or number begins with this text',
      roles: anyone,
      query: z.strictObject({ ...pageByNames, q: text(256) }),
      response: pageOf(subjectShape),
      handle: async ({ scope, caller, query: { q, ...page } }) => {
        const items: Subject[] = [];
        for (const { search } of apps) items.push(...((await search?.(scope, q, caller.role)) ?? []));
        return pageJson(
          pageByName(items, ({ type, id }) => `${type}:${id}`, given(page)),
          (item) => item,
        );
      },
    }),
  ];
}

function subjectOf(given: string): Subject {
  const [, type = '', id = ''] = /^([a-z][a-z0-9_]*):(.+)$/s.exec(given) ?? [];
  if (type === '')
    throw new TallymanError(
      'BAD_OPTION',
      `"${given}" is not a subject: expected a type and an id, such as job:17`,
    );
  return { type, id };
}

/** A page ends between two times: moments of the same millisecond stay together. */
function pageOfMoments(found: readonly Moment[], limit: number) {
  const newest = found.toSorted((a, b) => b.at.getTime() - a.at.getTime());
  const last = newest[limit - 1];
  const items = newest.length <= limit || !last ? newest : newest.filter(({ at }) => at >= last.at);
  const next = newest.length > limit && last ? last.at.toISOString() : null;
  return {
    items: items.map(({ id, type, at, text, details }) => ({
      id,
      type,
      at: at.toISOString(),
      text,
      details,
    })),
    next_cursor: next,
    next_before: next,
  };
}

async function momentsOfJob(
  on: TenantQueries,
  { type, id }: Subject,
  { before }: SubjectPage,
): Promise<Moment[]> {
  if (type !== 'job' || !/^\d{1,19}$/.test(id)) return [];
  const job = await new Jobs(on, 0).get(id);
  if (!job) return [];
  const moments: Moment[] = [
    {
      id: `${id}:created`,
      type: 'job.created',
      at: job.createdAt,
      text: `enqueued as ${job.kind}`,
      details: {},
    },
  ];
  if (job.lastError)
    moments.push({
      id: `${id}:failed`,
      type: 'job.failed',
      at: new Date(job.lastError.at),
      text: `attempt ${job.lastError.attempt} failed: ${job.lastError.message}`,
      details: { code: job.lastError.code },
    });
  if (job.finishedAt)
    moments.push({
      id: `${id}:ended`,
      type: 'job.ended',
      at: job.finishedAt,
      text: `ended as ${job.status}`,
      details: { status: job.status },
    });
  return moments.filter(({ at }) => before === undefined || at < before.at);
}
