import { z } from 'zod';
import { pageByName } from '../../../engine/paging.ts';
import { given } from '../../../given.ts';
import { operators, readers } from '../../../host/roles.ts';
import { id, page, pageByNames, pageOf, route, text } from '../../../host/route.ts';
import {
  type BuiltInTemplate,
  type LabelTemplate,
  listBuiltIns,
  listLabelTypes,
  listTemplates,
  palettes,
  previewBuiltIn,
  previewTemplate,
  putLabelType,
  putTemplate,
  removeLabelType,
  removeTemplate,
  requireBuiltIn,
  requireSvg,
  requireTemplate,
} from '../index.ts';
import { changeOf } from './stores.ts';

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

const builtInShape = z.object({
  name: z.string(),
  width: z.number(),
  height: z.number(),
  palettes: z.array(z.enum(palettes)),
  placeholders: z.array(z.string()),
});

const builtInJson = ({ name, width, height, palettes, placeholders }: BuiltInTemplate) => ({
  name,
  width,
  height,
  palettes: [...palettes],
  placeholders: [...placeholders],
});

const byName = z.strictObject({ name: text(64) });

export const labelDesignRoutes = [
  route({
    method: 'GET',
    url: '/v1/label-types',
    action: 'label_types.list',
    summary: 'Sorts of labels, by name',
    roles: readers,
    query: z.strictObject(pageByNames),
    response: pageOf(typeShape),
    handle: async ({ scope, query }) => {
      const all = await listLabelTypes(scope, scope.tenantId);
      const found = pageByName(all, ({ name }) => name, given(query));
      return { items: found.items, next_cursor: found.nextCursor };
    },
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
    url: '/v1/built-in-templates',
    action: 'built_in_templates.list',
    summary: 'Templates that come with Tallyman: labels without a template of yours show that of their size',
    roles: readers,
    query: z.strictObject(pageByNames),
    response: pageOf(builtInShape),
    handle: async ({ query }) => {
      const found = pageByName(listBuiltIns(), ({ name }) => name, given(query));
      return { items: found.items.map(builtInJson), next_cursor: found.nextCursor };
    },
  }),
  route({
    method: 'GET',
    url: '/v1/built-in-templates/:name',
    action: 'built_in_templates.show',
    summary: 'One of them, with its text; of any size, such as built-in-250x122',
    roles: readers,
    params: byName,
    response: builtInShape.extend({ svg: z.string() }),
    handle: async ({ params }) => {
      const { svg, ...template } = requireBuiltIn(params.name);
      return { ...builtInJson(template), svg };
    },
  }),
  route({
    method: 'GET',
    url: '/v1/built-in-templates/:name/preview',
    action: 'built_in_templates.preview',
    summary: 'One of them filled with a sample product, as image/png',
    roles: readers,
    params: byName,
    query: z.strictObject({
      palette: z.enum(palettes).default('bw'),
      promotion: z.enum(['true', 'false']).default('false'),
    }),
    produces: 'image/png',
    response: z.unknown(),
    handle: async ({ scope, params, query }) =>
      (
        await previewBuiltIn(scope, scope.tenantId, params.name, {
          palette: query.palette,
          promotion: query.promotion === 'true',
        })
      ).png,
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
    body: z.union([
      z.strictObject({ svg: text(1024 * 1024) }),
      z.strictObject({ copy_of: text(64).describe('A template, built-in or of your own') }),
    ]),
    response: templateShape,
    handle: async (call) => {
      const { scope, params, body } = call;
      const svg = 'svg' in body ? body.svg : await requireSvg(scope, scope.tenantId, body.copy_of);
      return templateJson(await putTemplate(changeOf(call), params.name, svg));
    },
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
