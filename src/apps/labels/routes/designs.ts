import { z } from 'zod';
import { given } from '../../../given.ts';
import { operators, readers } from '../../../host/roles.ts';
import { id, page, pageOf, route, text } from '../../../host/route.ts';
import {
  type LabelTemplate,
  listLabelTypes,
  listTemplates,
  palettes,
  previewTemplate,
  putLabelType,
  putTemplate,
  removeLabelType,
  removeTemplate,
  requireTemplate,
} from '../index.ts';
import { changeOf, wakes } from './stores.ts';

const typeShape = z.object({
  id,
  name: z.string(),
  width: z.number(),
  height: z.number(),
  palette: z.enum(palettes),
  pages: z.number(),
});

const templateShape = z.object({
  id,
  name: z.string(),
  version: z.number(),
  changed_at: z.string(),
  pages: z.number(),
});

const templateJson = ({ id, name, version, changedAt, pages }: LabelTemplate) => ({
  id,
  name,
  version,
  changed_at: changedAt,
  pages,
});

const byName = z.strictObject({ name: text(64) });

export const labelDesignRoutes = [
  route({
    method: 'GET',
    url: '/v1/label-types',
    action: 'label_types.list',
    summary: 'Sorts of labels, by name',
    roles: readers,
    response: z.object({ items: z.array(typeShape) }),
    handle: async ({ scope }) => ({ items: await listLabelTypes(scope, scope.tenantId) }),
  }),
  route({
    method: 'PUT',
    url: '/v1/label-types/:name',
    action: 'label_types.put',
    summary: 'Make a type, or change it; its labels get new images',
    roles: operators,
    params: byName,
    body: z.strictObject({
      width: z.int().min(1).max(4096),
      height: z.int().min(1).max(4096),
      palette: z.enum(palettes),
      pages: z.int().min(1).max(16).optional(),
    }),
    wakes,
    response: typeShape,
    handle: (call) => {
      const { pages, ...panel } = call.body;
      return putLabelType(changeOf(call), { name: call.params.name, ...panel, ...given({ pages }) });
    },
  }),
  route({
    method: 'DELETE',
    url: '/v1/label-types/:name',
    action: 'label_types.remove',
    summary: 'Remove a type that no label has',
    roles: operators,
    params: byName,
    status: 204,
    response: z.null(),
    handle: (call) => removeLabelType(changeOf(call), call.params.name),
  }),
  route({
    method: 'GET',
    url: '/v1/label-templates',
    action: 'label_templates.list',
    summary: 'Templates, newest first',
    roles: readers,
    query: z.strictObject(page),
    response: pageOf(templateShape),
    handle: async ({ scope, query }) => {
      const found = await listTemplates(scope, scope.tenantId, given(query));
      return { items: found.items.map(templateJson), next_cursor: found.nextCursor };
    },
  }),
  route({
    method: 'PUT',
    url: '/v1/label-templates/:name',
    action: 'label_templates.put',
    summary: 'Make a template, or its next version; labels that show it get new images',
    roles: operators,
    params: byName,
    body: z.strictObject({ svg: text(1024 * 1024) }),
    wakes,
    response: templateShape,
    handle: async (call) => templateJson(await putTemplate(changeOf(call), call.params.name, call.body.svg)),
  }),
  route({
    method: 'GET',
    url: '/v1/label-templates/:name',
    action: 'label_templates.show',
    summary: 'One template, with its text',
    roles: readers,
    params: byName,
    response: templateShape.extend({ svg: z.string() }),
    handle: async ({ scope, params }) => {
      const { template, svg } = await requireTemplate(scope, scope.tenantId, params.name);
      return { ...templateJson(template), svg };
    },
  }),
  route({
    method: 'DELETE',
    url: '/v1/label-templates/:name',
    action: 'label_templates.remove',
    summary: 'Remove a template that no label shows',
    roles: operators,
    params: byName,
    status: 204,
    response: z.null(),
    handle: (call) => removeTemplate(changeOf(call), call.params.name),
  }),
  route({
    method: 'GET',
    url: '/v1/label-templates/:name/preview',
    action: 'label_templates.preview',
    summary: 'A template filled with a product, as image/png',
    roles: readers,
    params: byName,
    query: z.strictObject({ store: text(64), sku: text(64), palette: z.enum(palettes).optional() }),
    produces: 'image/png',
    response: z.unknown(),
    handle: async ({ scope, params, query: { palette, ...of } }) =>
      (await previewTemplate(scope, scope.tenantId, params.name, { ...of, ...given({ palette }) })).png,
  }),
];
