import { PermanentError } from '../../../engine/errors.ts';
import type { JobContext } from '../../../engine/jobs/context.ts';
import type { TenantQueries } from '../../../host/timeline.ts';
import { appendAudit } from '../audit/append.ts';
import { factHash } from '../compile/facts.ts';
import { buildSnapshot } from '../compile/snapshot.ts';
import type { FactType, Hash, JsonObject, SnapshotDocument, Source } from '../compile/types.ts';
import { notFound } from '../errors.ts';
import type { Means } from '../means.ts';
import { commitWork } from '../work.ts';
import { requestModelVersion } from '../write/versions.ts';
import { keepFailure } from './keep-failure.ts';
import type { BuildJob } from './kinds.ts';
import { withCodes } from './run.ts';

/** BUILD_SNAPSHOT: the facts of all validated documents of a product, sealed (BPC-5). A failed one says why in its row. */
export const buildSnapshotHandler =
  (means: Means) =>
  async (job: BuildJob, context: JobContext): Promise<void> => {
    try {
      await withCodes(() => build(job, context, means));
    } catch (error) {
      if (error instanceof PermanentError) await keepFailure(context, 'snapshot', job.snapshotId, error);
      throw error;
    }
  };

const build = ({ productId, snapshotId, next }: BuildJob, context: JobContext, means: Means): Promise<void> =>
  commitWork(context, means.fresh, async (work) => {
    const { on } = work;
    // Locked: a job that is run again beside one that was requested again finds the snapshot sealed.
    const { rows } = await on.query<{ state: string }>(
      'select s.state from passports.snapshots s where s.tenant_id = $1 and s.id = $2 for no key update',
      [on.tenantId, snapshotId],
    );
    const [snapshot] = rows;
    if (!snapshot) throw notFound('snapshot', snapshotId);
    if (snapshot.state !== 'SEALED') await seal(on, productId, snapshotId);
    if (next) await requestModelVersion(work, productId, next, snapshotId);
  });

async function seal(on: TenantQueries, productId: string, snapshotId: string): Promise<void> {
  const documents = await validatedDocuments(on, productId);
  const stored = await factsOf(
    on,
    documents.map(({ id }) => id),
  );
  const { hash, facts } = buildSnapshot(stored, documents);
  const idOf = new Map(stored.map((fact) => [`${fact.type}|${fact.key}|${factHash(fact)}`, fact.id]));
  const current = new Set(facts.flatMap(({ sources }) => sources.map(({ document }) => document)));
  await on.query(
    `insert into passports.snapshot_documents (snapshot_id, document_version_id, tenant_id)
     select $2, u.id, $1 from unnest($3::uuid[]) u (id)`,
    [on.tenantId, snapshotId, documents.filter((one) => current.has(one.hash)).map(({ id }) => id)],
  );
  await on.query(
    `insert into passports.snapshot_facts (snapshot_id, fact_id, tenant_id) select $2, u.id, $1 from unnest($3::bigint[]) u (id)`,
    [on.tenantId, snapshotId, facts.map((fact) => idOf.get(`${fact.type}|${fact.key}|${factHash(fact)}`))],
  );
  await on.query(
    `update passports.snapshots s set state = 'READY', hash = $3, fact_count = $4, error = null
      where s.tenant_id = $1 and s.id = $2`,
    [on.tenantId, snapshotId, hash, facts.length],
  );
  const { rows } = await on.query<{ digest: string }>(
    `update passports.snapshots s set state = 'SEALED', sealed_at = now() where s.tenant_id = $1 and s.id = $2
     returning passports.snapshot_digest(s.id) as digest`,
    [on.tenantId, snapshotId],
  );
  await appendAudit(on, [
    {
      aggregate: ['snapshot', snapshotId],
      type: 'snapshot.sealed',
      data: { digest: rows[0]?.digest ?? '', facts: facts.length, hash },
    },
  ]);
}

/** In each document the newest validated version supersedes the older ones. */
async function validatedDocuments(
  on: TenantQueries,
  productId: string,
): Promise<readonly (SnapshotDocument & { readonly id: string })[]> {
  const { rows } = await on.query<{ id: string; hash: Hash }>(
    `select distinct on (d.id) v.id, v.sha256 as hash
       from passports.documents d join passports.document_versions v on v.document_id = d.id
      where d.tenant_id = $1 and d.product_id = $2 and v.state = 'VALIDATED' order by d.id, v.number desc`,
    [on.tenantId, productId],
  );
  return rows.map((row) => ({ ...row, supersedes: null }));
}

interface FactRow {
  readonly id: string;
  readonly type: FactType;
  readonly key: string;
  readonly schemaVersion: number;
  readonly payload: string;
  readonly sources: readonly Source[];
}

async function factsOf(on: TenantQueries, documents: readonly string[]) {
  const { rows } = await on.query<FactRow>(
    `select f.id, f.fact_type as type, f.fact_key as key, f.schema_version as "schemaVersion", f.payload,
            json_agg(json_build_object('document', v.sha256, 'row', s.row_number, 'column', s.column_name)) as sources
       from passports.fact_sources s
       join passports.facts f on f.id = s.fact_id
       join passports.document_versions v on v.id = s.document_version_id
      where s.tenant_id = $1 and s.document_version_id = any ($2::uuid[]) group by f.id`,
    [on.tenantId, documents],
  );
  return rows.map(({ payload, ...row }) => ({ ...row, payload: JSON.parse(payload) as JsonObject }));
}
