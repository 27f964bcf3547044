import { z } from 'zod';
import { given } from '../../../given.ts';
import { operators, producers, readers } from '../../../host/roles.ts';
import { id, page, pageOf, route, text } from '../../../host/route.ts';
import {
  assign,
  type Label,
  type LabelPage,
  listLabels,
  pageStates,
  previewLabel,
  putLabels,
  removeLabels,
  requireLabel,
  resync,
  unassign,
} from '../index.ts';
import { changeOf } from './stores.ts';

const labelShape = z.object({
  id,
  mac: z.string(),
  store: z.string(),
  type: z.string(),
  state: z.enum(pageStates).nullable(),
  battery: z.string().nullable(),
  seen_at: z.string().nullable(),
  created_at: z.string(),
});

/** A label as the API and `--json` show it. */
export const labelJson = (label: Label) => ({
  id: label.id,
  mac: label.mac,
  store: label.store,
  type: label.type,
  state: label.state,
  battery: label.battery,
  seen_at: label.seenAt,
  created_at: label.createdAt,
});

const pageShape = z.object({
  page: z.number(),
  sku: z.string().nullable(),
  template: z.string().nullable(),
  state: z.enum(pageStates),
  wanted_job: id.nullable(),
  wanted_at: z.string().nullable(),
  accepted_hash: z.string().nullable(),
  accepted_at: z.string().nullable(),
  shown_hash: z.string().nullable(),
  shown_at: z.string().nullable(),
  error: z.string().nullable(),
});

const pageJson = (shown: LabelPage) => ({
  page: shown.page,
  sku: shown.sku,
  template: shown.template,
  state: shown.state,
  wanted_job: shown.wantedJob,
  wanted_at: shown.wantedAt,
  accepted_hash: shown.acceptedHash,
  accepted_at: shown.acceptedAt,
  shown_hash: shown.shownHash,
  shown_at: shown.shownAt,
  error: shown.error,
});

/** The same, with its pages. */
export const labelWithPagesJson = ({
  pages,
  ...label
}: Label & { readonly pages: readonly LabelPage[] }) => ({
  ...labelJson(label),
  pages: pages.map(pageJson),
});

const byMac = z.strictObject({ mac: text(64) });
const pageNumber = z.coerce.number().int().min(1).max(16);

export const labelRoutes = [
  route({
    method: 'GET',
    url: '/v1/labels',
    action: 'labels.list',
    summary: 'Labels, newest first',
    roles: readers,
    query: z.strictObject({
      ...page,
      store: text(64).optional(),
      state: z.enum(pageStates).optional(),
      sku: text(64).optional(),
    }),
    response: pageOf(labelShape),
    handle: async ({ scope, query: { limit, cursor, ...filter } }) => {
      const found = await listLabels(scope, scope.tenantId, given(filter), given({ limit, cursor }));
      return { items: found.items.map(labelJson), next_cursor: found.nextCursor };
    },
  }),
  route({
    method: 'POST',
    url: '/v1/labels',
    action: 'labels.put',
    summary: 'Add labels, or give them another type; all of them or none',
    roles: operators,
    body: z.strictObject({
      labels: z
        .array(z.strictObject({ mac: text(64), store: text(64), type: text(64) }))
        .min(1)
        .max(1000),
    }),
    response: z.object({ added: z.number(), changed: z.number() }),
    handle: (call) => putLabels(changeOf(call), call.body.labels),
  }),
  route({
    method: 'GET',
    url: '/v1/labels/:mac',
    action: 'labels.show',
    summary: 'One label, and what its pages show',
    roles: readers,
    params: byMac,
    response: labelShape.extend({ pages: z.array(pageShape) }),
    handle: async ({ scope, params }) =>
      labelWithPagesJson(await requireLabel(scope, scope.tenantId, params.mac)),
  }),
  route({
    method: 'DELETE',
    url: '/v1/labels/:mac',
    action: 'labels.remove',
    summary: 'Remove a label; what it shows stays on it',
    roles: operators,
    params: byMac,
    status: 204,
    response: z.null(),
    handle: (call) => removeLabels(changeOf(call), [call.params.mac]),
  }),
  route({
    method: 'GET',
    url: '/v1/labels/:mac/preview',
    action: 'labels.preview',
    summary: 'What a page of a label should show, as image/png',
    roles: readers,
    params: byMac,
    query: z.strictObject({ page: pageNumber.default(1) }),
    produces: 'image/png',
    response: z.unknown(),
    handle: async ({ scope, params, query }) =>
      (await previewLabel(scope, scope.tenantId, params.mac, query.page)).png,
  }),
  route({
    method: 'POST',
    url: '/v1/labels/:mac/resync',
    action: 'labels.resync',
    summary: 'Push again what a label should show',
    roles: operators,
    params: byMac,
    status: 202,
    response: z.object({ labels: z.number() }),
    handle: async (call) => ({ labels: await resync(changeOf(call), { macs: [call.params.mac] }) }),
  }),
  route({
    method: 'DELETE',
    url: '/v1/labels/:mac/pages/:page',
    action: 'labels.clear',
    summary: 'Clear a page: it becomes blank',
    roles: producers,
    params: z.strictObject({ mac: text(64), page: pageNumber }),
    status: 204,
    response: z.null(),
    handle: async (call) => {
      await unassign(changeOf(call), [call.params]);
    },
  }),
  route({
    method: 'POST',
    url: '/v1/label-assignments',
    action: 'labels.assign',
    summary: 'Show products on labels, each through a template; all of them or none',
    roles: producers,
    body: z.strictObject({
      assignments: z
        .array(
          z.strictObject({
            mac: text(64),
            page: z.int().min(1).max(16).default(1),
            sku: text(64),
            template: text(64).optional().describe("Default: the built-in one of the label's size"),
          }),
        )
        .min(1)
        .max(1000),
    }),
    response: z.object({ labels: z.number().describe('Labels that get a new image') }),
    handle: async (call) => {
      const assignments = call.body.assignments.map(({ template, ...of }) => ({
        ...of,
        ...given({ template }),
      }));
      return { labels: await assign(changeOf(call), assignments) };
    },
  }),
];
