import { TallymanError } from '../../../engine/errors.ts';
import { requireText } from '../../../engine/validate.ts';
import { appendAudit } from '../audit/append.ts';
import { sha256Hex } from '../compile/hash.ts';
import type { DocumentFormat, DocumentKind, Hash } from '../compile/types.ts';
import { type Issue, parseFacts } from '../jobs/kinds.ts';
import { requireProduct } from '../store/products.ts';
import type { Work } from '../work.ts';

export interface NewDocument {
  readonly productId: string;
  readonly kind: DocumentKind;
  /** The same name again is a new version, which supersedes the older ones. */
  readonly name: string;
  readonly format: DocumentFormat;
  readonly bytes: Uint8Array;
  /** When all documents of the product are read: build a snapshot and issue the model's passport. */
  readonly next?: Issue;
}

export interface UploadedDocument {
  readonly documentId: string;
  readonly versionId: string;
  readonly number: number;
  readonly sha256: Hash;
  /** The last version had the same bytes: nothing was added. */
  readonly existing: boolean;
}

/** Stores the bytes and enqueues PARSE_FACTS. The same bytes as the last version's add nothing. */
export async function uploadDocument(work: Work, document: NewDocument): Promise<UploadedDocument> {
  const { on, fresh } = work;
  const { productId, kind, name, format, bytes } = document;
  requireText(name, 'the name of a document', 256);
  await requireProduct(on, productId);
  await on.query(
    `insert into passports.documents (id, tenant_id, product_id, kind, name) values ($1, $2, $3, $4, $5)
     on conflict (tenant_id, product_id, name) do nothing`,
    [fresh.id(`document|${productId}|${name}`), on.tenantId, productId, kind, name],
  );
  // Locked: of two uploads at once the second one gets the next number.
  const { rows } = await on.query<{ id: string; kind: string }>(
    `select d.id, d.kind from passports.documents d
      where d.tenant_id = $1 and d.product_id = $2 and d.name = $3 for no key update`,
    [on.tenantId, productId, name],
  );
  const { id: documentId, kind: known } = rows[0] as { id: string; kind: string };
  if (known !== kind)
    throw new TallymanError(
      'CONFLICT',
      `document "${name}" of product "${productId}" is of kind ${known}, not ${kind}: choose another name`,
    );
  const { rows: last } = await on.query<{ id: string; number: number; sha256: Hash; format: string }>(
    `select v.id, v.number, v.sha256, v.format from passports.document_versions v
      where v.document_id = $1 order by v.number desc limit 1`,
    [documentId],
  );
  const sha256 = sha256Hex(bytes);
  const [before] = last;
  if (before?.sha256 === sha256 && before.format === format)
    return { documentId, versionId: before.id, number: before.number, sha256, existing: true };
  const number = (before?.number ?? 0) + 1;
  const versionId = fresh.id(`document-version|${documentId}|${number}`);
  await on.query(
    `insert into passports.document_versions (id, tenant_id, document_id, number, format, sha256, bytes)
     values ($1, $2, $3, $4, $5, $6, $7)`,
    [versionId, on.tenantId, documentId, number, format, sha256, Buffer.from(bytes)],
  );
  await appendAudit(on, [
    {
      aggregate: ['document', versionId],
      type: 'document.uploaded',
      data: { document: documentId, format, kind, name, number, product: productId, sha256 },
    },
  ]);
  await work.enqueue(parseFacts, {
    documentVersionId: versionId,
    ...(document.next && { next: document.next }),
  });
  return { documentId, versionId, number, sha256, existing: false };
}
