import type { JobContext } from '../../../engine/jobs/context.ts';
import { emit } from '../../../events/emit.ts';
import { appendAudit } from '../audit/append.ts';
import { canonicalAscii } from '../compile/canonical.ts';
import { parsingDocument } from '../compile/documents/parse.ts';
import { factHash } from '../compile/facts.ts';
import { rowsInASlice, type Slices } from '../compile/rules/slices.ts';
import type {
  DocumentInput,
  DocumentLimits,
  DocumentProblem,
  Hash,
  ParsedDocument,
} from '../compile/types.ts';
import type { Means } from '../means.ts';
import { betweenOthers } from '../rules/between-others.ts';
import { type DocumentVersion, documentBytes, requireDocumentVersion } from '../store/documents.ts';
import { commitWork, type Work } from '../work.ts';
import { requestSnapshot } from '../write/snapshots.ts';
import type { ParseJob } from './kinds.ts';
import { withCodes } from './run.ts';

/** PARSE_FACTS: all facts of a document in one transaction, or the list of what is wrong with it (BPC-2, BPC-3). */
export const parseFactsHandler = (means: Means) => (job: ParseJob, context: JobContext) =>
  withCodes(async () => {
    const document = await requireDocumentVersion(context.tenant, job.documentVersionId);
    const bytes = await documentBytes(context.tenant, job.documentVersionId);
    const { kind, format } = document;
    const parsed = await betweenOthers(reading({ kind, format, bytes }, means.documentLimits));
    const settled = await commitWork(context, means.fresh, async (work) => {
      // Of two documents that are read at once, the later one sees that it is the last.
      await work.on.query(
        'select 1 from passports.products p where p.tenant_id = $1 and p.id = $2 for no key update',
        [work.on.tenantId, document.productId],
      );
      const isNew = parsed.ok
        ? await accept(work, document, parsed)
        : await reject(work, document, parsed.problems);
      if (isNew && job.next && parsed.ok && (await isLast(work, document.productId)))
        await requestSnapshot(work, document.productId, job.next);
      return isNew;
    });
    if (settled) means.observer.documentSettled(parsed.ok ? 'validated' : 'rejected');
  });

/** What is written of each fact. */
interface FactRows {
  readonly hashes: readonly Hash[];
  readonly payloads: readonly string[];
}

type ReadDocument = Exclude<ParsedDocument, { readonly ok: true }> | AcceptedDocument;
type AcceptedDocument = Extract<ParsedDocument, { readonly ok: true }> & FactRows;

function* reading(input: DocumentInput, limits: DocumentLimits): Slices<ReadDocument> {
  const parsed = yield* parsingDocument(input, limits);
  if (!parsed.ok) return parsed;
  const hashes: Hash[] = [];
  const payloads: string[] = [];
  for (const [at, fact] of parsed.facts.entries()) {
    if (at % rowsInASlice === 0) yield;
    hashes.push(factHash(fact));
    payloads.push(canonicalAscii(fact.payload));
  }
  return { ...parsed, hashes, payloads };
}

async function accept(
  work: Work,
  document: DocumentVersion,
  { facts, hashes, payloads }: AcceptedDocument,
): Promise<boolean> {
  const { on } = work;
  const { rowCount } = await on.query(
    `update passports.document_versions v set state = 'PARSED' where v.tenant_id = $1 and v.id = $2 and v.state = 'UPLOADED'`,
    [on.tenantId, document.id],
  );
  if (rowCount === 0) return false;
  const columns = [
    facts.map(({ type }) => type),
    facts.map(({ key }) => key),
    facts.map(({ schemaVersion }) => schemaVersion),
    hashes,
  ];
  // In one order, so that two documents with the same facts never wait for each other in a circle.
  await on.query(
    `insert into passports.facts (tenant_id, fact_type, fact_key, schema_version, payload_hash, payload)
     select $1, u.* from unnest($2::text[], $3::text[], $4::int[], $5::text[], $6::text[]) u (type, key, schema, hash, payload)
      order by u.type collate "C", u.key collate "C", u.schema, u.hash collate "C"
     on conflict (tenant_id, fact_type, fact_key, schema_version, payload_hash) do nothing`,
    [on.tenantId, ...columns, payloads],
  );
  const sources = facts.flatMap(({ sources }, at) => sources.map((source) => ({ at, ...source })));
  await on.query(
    `insert into passports.fact_sources (fact_id, document_version_id, tenant_id, row_number, column_name)
     select f.id, $6, $1, s.row_number, s.column_name
       from unnest($2::text[], $3::text[], $4::int[], $5::text[]) with ordinality
              as u (fact_type, fact_key, schema_version, payload_hash, n)
       join passports.facts f on f.tenant_id = $1 and f.fact_type = u.fact_type and f.fact_key = u.fact_key
        and f.schema_version = u.schema_version and f.payload_hash = u.payload_hash
       join unnest($7::int[], $8::int[], $9::text[]) as s (n, row_number, column_name) on s.n = u.n`,
    [
      on.tenantId,
      ...columns,
      document.id,
      sources.map(({ at }) => at + 1),
      sources.map(({ row }) => row),
      sources.map(({ column }) => column),
    ],
  );
  await settle(work, document, 'VALIDATED', { facts: facts.length });
  return true;
}

async function reject(
  work: Work,
  document: DocumentVersion,
  problems: readonly DocumentProblem[],
): Promise<boolean> {
  if (document.state !== 'UPLOADED') return false;
  await settle(work, document, 'REJECTED', { problems });
  return true;
}

async function settle(
  { on }: Work,
  { id, documentId, productId, kind, sha256 }: DocumentVersion,
  state: 'VALIDATED' | 'REJECTED',
  found: { readonly facts?: number; readonly problems?: readonly DocumentProblem[] },
): Promise<void> {
  const { rows } = await on.query<{ digest: string }>(
    `update passports.document_versions v set state = $3, fact_count = $4, problems = $5, settled_at = now()
      where v.tenant_id = $1 and v.id = $2
     returning case when v.problems is null then passports.facts_digest(v.id) else passports.digest(v.problems::text) end as digest`,
    [on.tenantId, id, state, found.facts ?? null, found.problems ? JSON.stringify(found.problems) : null],
  );
  const counted =
    found.facts === undefined ? { problems: found.problems?.length ?? 0 } : { facts: found.facts };
  const step = state.toLowerCase();
  await appendAudit(on, [
    {
      aggregate: ['document', id],
      type: `document.${step}`,
      data: { digest: rows[0]?.digest ?? '', sha256, ...counted },
    },
  ]);
  await emit(on, {
    type: `document.version.${step}`,
    aggregateType: 'document',
    aggregateId: documentId,
    id: `bpc:${step}:${id}`,
    tenantId: on.tenantId,
    payload: { document_id: documentId, version_id: id, product_id: productId, kind, sha256, ...counted },
  });
}

/**
 * The newest version of every document of the product is VALIDATED: none waits to be read, and none was rejected. Without
 * that a snapshot would have or lack the facts of a rejected document depending on which document was read last.
 */
async function isLast({ on }: Work, productId: string): Promise<boolean> {
  const { rows } = await on.query(
    `select 1 from passports.documents d
       join lateral (select v.state from passports.document_versions v
                      where v.document_id = d.id order by v.number desc limit 1) n on true
      where d.tenant_id = $1 and d.product_id = $2 and n.state <> 'VALIDATED' limit 1`,
    [on.tenantId, productId],
  );
  return rows.length === 0;
}
