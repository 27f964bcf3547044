import { z } from 'zod';
import { given } from '../../../given.ts';
import { producers, readers } from '../../../host/roles.ts';
import { type AnyRoute, id, page, pageOf, Reply, route, text } from '../../../host/route.ts';
import { readerOf } from '../access.ts';
import { type DocumentKind, documentKinds, type FactType, factTypes } from '../compile/types.ts';
import { notFound, passportError } from '../errors.ts';
import {
  type DocumentState,
  type DocumentVersion,
  documentBytes,
  documentStates,
  listDocumentVersions,
  listFacts,
  requireDocumentVersion,
  type StoredFact,
} from '../store/index.ts';
import { uploadDocument } from '../write/documents.ts';
import type { RouteTools } from './index.ts';
import { issueFrom, issueQuery } from './issue.ts';
import { byId, byProduct, formatOf, hash, pageByUuids, problemShape, tableTypes, uuid } from './shapes.ts';

const shape = z.object({
  id: uuid,
  document_id: uuid,
  product_id: z.string(),
  kind: z.enum(documentKinds),
  name: z.string(),
  number: z.number(),
  format: z.enum(['csv', 'json']),
  sha256: hash,
  size: z.number(),
  state: z.enum(documentStates),
  fact_count: z.number().nullable(),
  problems: z.array(problemShape).nullable().describe('What is wrong with it, if it is REJECTED'),
  created_at: z.string(),
  settled_at: z.string().nullable(),
});

export const documentJson = (version: DocumentVersion) => ({
  id: version.id,
  document_id: version.documentId,
  product_id: version.productId,
  kind: version.kind,
  name: version.name,
  number: version.number,
  format: version.format,
  sha256: version.sha256,
  size: version.size,
  state: version.state,
  fact_count: version.factCount,
  problems: version.problems,
  created_at: version.createdAt,
  settled_at: version.settledAt,
});

const factShape = z.object({
  id,
  type: z.enum(factTypes),
  key: z.string(),
  schema_version: z.number(),
  payload_hash: hash,
  payload: z.record(z.string(), z.unknown()),
  sources: z.array(z.object({ document: hash, row: z.number(), column: z.string() })),
});

const factJson = ({ schemaVersion, payloadHash, ...fact }: StoredFact) => ({
  ...fact,
  schema_version: schemaVersion,
  payload_hash: payloadHash,
});

export const documentRoutes = ({ means, work }: RouteTools): readonly AnyRoute[] => [
  route({
    method: 'POST',
    url: '/v1/passports/products/:product/documents',
    action: 'passport_documents.upload',
    summary:
      'Upload a document of a model as CSV or JSON; it is read in the background. The same name again is a new version. With ' +
      '`rules` its passport is issued once all documents are read',
    roles: producers,
    params: byProduct,
    query: z.strictObject({
      kind: z.enum(documentKinds),
      name: text(256).describe('Its file name, such as bill-of-materials.csv'),
      ...issueQuery,
    }),
    upload: { types: tableTypes, maxBytes: means.documentLimits.maxBytes },
    status: 202,
    response: z.object({
      document_id: uuid,
      version_id: uuid,
      number: z.number(),
      sha256: hash,
      existing: z.boolean().describe('The last version has the same bytes: nothing was added'),
    }),
    handle: async (call) => {
      const { kind, name, ...issue } = call.query;
      const next = await issueFrom(call.scope, means, issue);
      const uploaded = await uploadDocument(work(call), {
        productId: call.params.product,
        kind: kind as DocumentKind,
        name,
        format: formatOf(call.headers['content-type']),
        bytes: call.bytes,
        ...given({ next }),
      });
      const { documentId, versionId, ...rest } = uploaded;
      return { document_id: documentId, version_id: versionId, ...rest };
    },
  }),
  route({
    method: 'GET',
    url: '/v1/passports/documents',
    action: 'passport_documents.list',
    summary: 'Versions of documents, by id',
    roles: readers,
    query: z.strictObject({
      ...pageByUuids,
      product: text(128).optional(),
      state: z.enum(documentStates).optional(),
    }),
    response: pageOf(shape),
    handle: async ({ scope, query: { limit, cursor, product, state } }) => {
      const filter = given({ productId: product, state: state as DocumentState | undefined });
      const found = await listDocumentVersions(scope, filter, given({ limit, cursor }));
      return { items: found.items.map(documentJson), next_cursor: found.nextCursor };
    },
  }),
  route({
    method: 'GET',
    url: '/v1/passports/documents/:id',
    action: 'passport_documents.show',
    summary: 'One version of a document: how far it is, and what is wrong with it, by row and column',
    roles: [...producers, 'auditor'],
    params: byId,
    query: z.strictObject({
      sha256: z
        .string()
        .regex(/^[0-9a-f]{64}$/, { error: 'expected a SHA-256 as 64 hex digits' })
        .optional()
        .describe(
          'Of the document, as its upload answered; another one is not found. A producer has to name it',
        ),
    }),
    response: shape,
    handle: async ({ scope, params, query, caller }) => {
      // Problems quote the document. Who knows its hash has its bytes; an id alone is in logs and webhooks.
      if (query.sha256 === undefined && readerOf(caller) !== 'owner')
        throw passportError(
          'VALIDATION_ERROR',
          'query.sha256: a producer names the SHA-256 of the document, which the answer to its upload has',
        );
      const found = await requireDocumentVersion(scope, params.id);
      if (query.sha256 !== undefined && query.sha256 !== found.sha256)
        throw notFound('document version', params.id);
      return documentJson(found);
    },
  }),
  route({
    method: 'GET',
    url: '/v1/passports/documents/:id/content',
    action: 'passport_documents.content',
    summary: 'The bytes of a document, as they were uploaded',
    roles: readers,
    params: byId,
    produces: tableTypes,
    response: z.string(),
    handle: async ({ scope, params }) => {
      const { format, sha256 } = await requireDocumentVersion(scope, params.id);
      return new Reply(
        format === 'csv' ? 'text/csv' : 'application/json',
        await documentBytes(scope, params.id),
        {
          headers: {
            etag: `"${sha256}"`,
            'content-disposition': `attachment; filename="${params.id}.${format}"`,
          },
        },
      );
    },
  }),
  route({
    method: 'GET',
    url: '/v1/passports/facts',
    action: 'passport_facts.list',
    summary: 'What documents say, each fact once, with all its sources',
    roles: readers,
    query: z.strictObject({
      ...page,
      document: uuid.optional().describe('Of this version of a document'),
      snapshot: uuid.optional().describe('Of this snapshot'),
      type: z.enum(factTypes).optional(),
      key: text(512).optional(),
    }),
    response: pageOf(factShape),
    handle: async ({ scope, query: { limit, cursor, document, snapshot, type, key } }) => {
      const filter = given({
        documentVersionId: document,
        snapshotId: snapshot,
        type: type as FactType | undefined,
        key,
      });
      const found = await listFacts(scope, filter, given({ limit, cursor }));
      return { items: found.items.map(factJson), next_cursor: found.nextCursor };
    },
  }),
];
