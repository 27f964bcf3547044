import type { Page, PageRequest } from '../../../engine/paging.ts';
import type { TenantQueries } from '../../../host/timeline.ts';
import type { Fact, FactType, Hash, JsonObject, Source } from '../compile/types.ts';

export interface StoredFact extends Fact {
  readonly id: string;
  readonly payloadHash: Hash;
}

interface FactRow {
  readonly id: string;
  readonly type: FactType;
  readonly key: string;
  readonly schemaVersion: number;
  readonly payloadHash: Hash;
  readonly payload: string;
  readonly sources: readonly Source[];
}

const columns = `f.id, f.fact_type as type, f.fact_key as key, f.schema_version as "schemaVersion",
  f.payload_hash as "payloadHash", f.payload`;
/** In the order in which the compiler keeps them. */
const sources = `coalesce(json_agg(json_build_object('document', v.sha256, 'row', s.row_number, 'column', s.column_name)
    order by v.sha256 collate "C", s.row_number, s.column_name collate "C"), '[]') as sources`;

const parsed = ({ payload, ...row }: FactRow): StoredFact => ({
  ...row,
  payload: JSON.parse(payload) as JsonObject,
});

/** Facts of a tenant with all their sources, by id; of one document version if one is named. */
export async function listFacts(
  on: TenantQueries,
  filter: {
    readonly documentVersionId?: string;
    readonly snapshotId?: string;
    readonly type?: FactType;
    readonly key?: string;
  } = {},
  { limit = 50, cursor = '0' }: PageRequest = {},
): Promise<Page<StoredFact>> {
  const size = Math.min(Math.max(limit, 1), 1000);
  const { rows } = await on.query<FactRow>(
    `select ${columns}, ${sources}
       from passports.facts f
       left join passports.fact_sources s on s.fact_id = f.id
       left join passports.document_versions v on v.id = s.document_version_id
      where f.tenant_id = $1 and f.id > $2 and ($3::text is null or f.fact_type = $3) and ($4::text is null or f.fact_key = $4)
        and ($5::uuid is null or exists (select 1 from passports.fact_sources o
                                          where o.document_version_id = $5 and o.fact_id = f.id))
        and ($6::uuid is null or exists (select 1 from passports.snapshot_facts n where n.snapshot_id = $6 and n.fact_id = f.id))
      group by f.id order by f.id limit $7`,
    [
      on.tenantId,
      cursor,
      filter.type ?? null,
      filter.key ?? null,
      filter.documentVersionId ?? null,
      filter.snapshotId ?? null,
      size + 1,
    ],
  );
  const items = rows.slice(0, size).map(parsed);
  return { items, nextCursor: rows.length > size ? (items.at(-1)?.id ?? null) : null };
}

/** The facts of a snapshot, each with its sources in the documents of the snapshot: a later document adds none here. */
export async function factsOfSnapshot(on: TenantQueries, snapshotId: string): Promise<readonly StoredFact[]> {
  const { rows } = await on.query<FactRow>(
    `select ${columns}, ${sources}
       from passports.snapshot_facts n
       join passports.facts f on f.id = n.fact_id
       join passports.fact_sources s on s.fact_id = f.id
       join passports.snapshot_documents d on d.snapshot_id = n.snapshot_id and d.document_version_id = s.document_version_id
       join passports.document_versions v on v.id = s.document_version_id
      where n.tenant_id = $1 and n.snapshot_id = $2
      group by f.id order by f.fact_type, f.fact_key, f.id`,
    [on.tenantId, snapshotId],
  );
  return rows.map(parsed);
}
