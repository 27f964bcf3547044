import { z } from 'zod';
import { given } from '../../../given.ts';
import { operators, readers } from '../../../host/roles.ts';
import { type AnyRoute, pageOf, Reply, route } from '../../../host/route.ts';
import { type JsonObject, type Reader, readerPoints } from '../compile/types.ts';
import { languages } from '../page/texts.ts';
import { type LabelSize, labelSizes } from '../print/sizes.ts';
import {
  exportBytes,
  exportFormatNames,
  exportFormats,
  exportStates,
  listExports,
  requireExport,
  requireVersion,
  type StoredExport,
} from '../store/index.ts';
import { requestExport } from '../write/exports.ts';
import type { RouteTools } from './index.ts';
import { byId, failureShape, hash, pageByUuids, uuid } from './shapes.ts';

const readerNames = Object.keys(readerPoints) as [Reader, ...Reader[]];

const shape = z.object({
  id: uuid,
  version_id: uuid,
  passport_id: uuid,
  serial: z.string().nullable(),
  format: z.enum(exportFormatNames),
  reader: z.enum(readerNames),
  state: z.enum(exportStates).describe('REQUESTED until its job is done; FAILED: `error` says why'),
  sha256: hash.nullable(),
  size: z.number().nullable(),
  file_name: z.string(),
  error: failureShape.nullable(),
  created_at: z.string(),
  made_at: z.string().nullable(),
});

export const exportJson = (made: StoredExport) => ({
  id: made.id,
  version_id: made.versionId,
  passport_id: made.passportId,
  serial: made.serial,
  format: made.format,
  reader: made.reader,
  state: made.state,
  sha256: made.sha256,
  size: made.size,
  file_name: exportFileName(made),
  error: made.error,
  created_at: made.createdAt,
  made_at: made.madeAt,
});

/** Serial numbers come from uploads: only plain letters are taken over. */
export const exportFileName = ({ serial, gtin, format }: StoredExport): string =>
  `passport-${(serial ?? gtin).replace(/[^\w.-]/g, '_')}.${exportFormats[format][1]}`;

/** Exports are the issuer's files, each made for one reader: other readers get theirs at the link on the label. */
export const exportRoutes = ({ work }: RouteTools): readonly AnyRoute[] => [
  route({
    method: 'POST',
    url: '/v1/passports/versions/:id/exports',
    action: 'passport_exports.request',
    summary:
      'Export a version as one file for one reader, in the background; the same request again is the same export, and a failed one is tried again',
    roles: operators,
    params: byId,
    body: z.strictObject({
      format: z.enum(exportFormatNames).default('bundle'),
      reader: z.enum(readerNames).default('public').describe('What this reader may see'),
      language: z.enum(languages).default('en').describe('For html and pdf'),
      label: z
        .enum(Object.keys(labelSizes) as [LabelSize, ...LabelSize[]])
        .optional()
        .describe('For pdf: one label of this size in mm'),
      supplement: z
        .record(z.string(), z.unknown())
        .optional()
        .describe('For catenax: what the aspect needs and the passport does not have'),
    }),
    status: 202,
    response: shape.extend({
      existing: z.boolean().describe('It was requested before, and nothing has changed since'),
    }),
    handle: async (call) => {
      const { format, reader, language, label, supplement } = call.body;
      const { id, existing } = await requestExport(work(call), call.params.id, {
        format,
        reader,
        language,
        ...given({ label, supplement: supplement as JsonObject | undefined }),
      });
      return { ...exportJson(await requireExport(call.scope, id)), existing };
    },
  }),
  route({
    method: 'GET',
    url: '/v1/passports/versions/:id/exports',
    action: 'passport_exports.of_version',
    summary: 'Exports of one version, by id',
    roles: readers,
    params: byId,
    query: z.strictObject(pageByUuids),
    response: pageOf(shape),
    handle: async ({ scope, params, query: { limit, cursor } }) => {
      await requireVersion(scope, params.id);
      const found = await listExports(scope, { versionId: params.id }, given({ limit, cursor }));
      return { items: found.items.map(exportJson), next_cursor: found.nextCursor };
    },
  }),
  route({
    method: 'GET',
    url: '/v1/passports/exports',
    action: 'passport_exports.list',
    summary: 'Exports, by id',
    roles: readers,
    query: z.strictObject(pageByUuids),
    response: pageOf(shape),
    handle: async ({ scope, query: { limit, cursor } }) => {
      const found = await listExports(scope, {}, given({ limit, cursor }));
      return { items: found.items.map(exportJson), next_cursor: found.nextCursor };
    },
  }),
  route({
    method: 'GET',
    url: '/v1/passports/exports/:id',
    action: 'passport_exports.show',
    summary: 'One export: how far it is, and its SHA-256',
    roles: readers,
    params: byId,
    response: shape,
    handle: async ({ scope, params }) => exportJson(await requireExport(scope, params.id)),
  }),
  route({
    method: 'GET',
    url: '/v1/passports/exports/:id/content',
    action: 'passport_exports.content',
    summary: 'The exported file, always the same bytes; 409 until it is READY',
    roles: readers,
    params: byId,
    produces: [...new Set(Object.values(exportFormats).map(([type]) => type))],
    response: z.string(),
    handle: async ({ scope, params }) => {
      const made = await requireExport(scope, params.id);
      return new Reply(exportFormats[made.format][0], await exportBytes(scope, made), {
        headers: {
          'content-disposition': `attachment; filename="${exportFileName(made)}"`,
          etag: `"${made.sha256}"`,
        },
      });
    },
  }),
];
