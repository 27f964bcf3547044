import {
  cutToBytes,
  type Measured,
  type Page,
  type PageRequest,
  withinPageBytes,
} from '../../../engine/paging.ts';
import type { TenantQueries } from '../../../host/timeline.ts';
import type { DocumentFormat, DocumentKind, DocumentProblem, Hash } from '../compile/types.ts';
import { notFound } from '../errors.ts';
import { textPage, textPageOf } from './page.ts';

export const documentStates = ['UPLOADED', 'PARSED', 'VALIDATED', 'REJECTED'] as const;
export type DocumentState = (typeof documentStates)[number];

/** One upload of a document. Its bytes: `documentBytes`. */
export interface DocumentVersion {
  readonly id: string;
  readonly documentId: string;
  readonly productId: string;
  readonly kind: DocumentKind;
  readonly name: string;
  readonly number: number;
  readonly format: DocumentFormat;
  readonly sha256: Hash;
  readonly size: number;
  readonly state: DocumentState;
  readonly factCount: number | null;
  /** What is wrong, of a REJECTED one. */
  readonly problems: readonly DocumentProblem[] | null;
  readonly createdAt: Date;
  readonly settledAt: Date | null;
}

const columns = `v.id, v.document_id as "documentId", d.product_id as "productId", d.kind, d.name, v.number, v.format, v.sha256,
  octet_length(v.bytes) as size, v.state, v.fact_count as "factCount", v.problems, v.created_at as "createdAt",
  v.settled_at as "settledAt"`;
const from = `from passports.document_versions v join passports.documents d on d.id = v.document_id`;

export async function requireDocumentVersion(on: TenantQueries, id: string): Promise<DocumentVersion> {
  const { rows } = await on.query<DocumentVersion>(
    `select ${columns} ${from} where v.tenant_id = $1 and v.id = $2`,
    [on.tenantId, id],
  );
  if (!rows[0]) throw notFound('document version', id);
  return rows[0];
}

/** The bytes as they were uploaded. */
export async function documentBytes(on: TenantQueries, id: string): Promise<Uint8Array> {
  const { rows } = await on.query<{ bytes: Buffer }>(
    'select v.bytes from passports.document_versions v where v.tenant_id = $1 and v.id = $2',
    [on.tenantId, id],
  );
  if (!rows[0]) throw notFound('document version', id);
  return rows[0].bytes;
}

export async function listDocumentVersions(
  on: TenantQueries,
  filter: { readonly productId?: string; readonly state?: DocumentState } = {},
  page: PageRequest = {},
): Promise<Page<DocumentVersion>> {
  const { size, fetch, cursor } = textPage(page);
  const found = await on.query<Measured<DocumentVersion>>(
    withinPageBytes(
      `select ${columns} ${from}
        where v.tenant_id = $1 and ($2::text is null or d.product_id = $2) and ($3::text is null or v.state = $3)
          and ($4 = '' or v.id > nullif($4, '')::uuid) order by v.id limit $5`,
      'id',
      'problems',
    ),
    [on.tenantId, filter.productId ?? null, filter.state ?? null, cursor, fetch],
  );
  const kept = cutToBytes(found.rows);
  return textPageOf(kept.rows, size, ({ id }) => id, kept);
}

/** The document versions that a snapshot was made from. */
export async function documentsOfSnapshot(
  on: TenantQueries,
  snapshotId: string,
): Promise<readonly DocumentVersion[]> {
  const { rows } = await on.query<DocumentVersion>(
    `select ${columns} ${from} join passports.snapshot_documents s on s.document_version_id = v.id
      where v.tenant_id = $1 and s.snapshot_id = $2 order by v.id`,
    [on.tenantId, snapshotId],
  );
  return rows;
}
