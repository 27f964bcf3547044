import type { TenantQueries } from '../../../host/timeline.ts';
import { newestSnapshot, type SnapshotState } from './snapshots.ts';
import type { VersionState } from './versions.ts';

/** How far the work on one model is. */
export interface Progress {
  /** Versions of documents by state. */
  readonly documents: Readonly<Record<string, number>>;
  /** The one that was requested last. */
  readonly snapshot: {
    readonly snapshot_id: string;
    readonly state: SnapshotState;
    readonly error: string | null;
  } | null;
  readonly model: {
    readonly version_id: string;
    readonly state: VersionState;
    readonly error: string | null;
  } | null;
  /** Batteries that have not ceased. */
  readonly batteries: number;
  /** Of batteries, linked to that version of the model, by state; FAILED for those that have an error. */
  readonly versions: Readonly<Record<string, number>>;
}

/** Counts what belongs to one model: relies on the keys of documents and passports, and on versions_of_model. */
export async function progressOf(on: TenantQueries, productId: string): Promise<Progress> {
  const newest = await newestSnapshot(on, productId);
  const { rows } = await on.query<Omit<Progress, 'snapshot'>>(
    `with model as (
       select v.id as version_id, v.state, v.error ->> 'message' as error
         from passports.passports p join passports.versions v on v.passport_id = p.id
        where p.tenant_id = $1 and p.product_id = $2 and p.serial is null order by v.number desc limit 1)
     select coalesce((select jsonb_object_agg(d.state, d.n) from (
                        select v.state, count(*) as n
                          from passports.documents o join passports.document_versions v on v.document_id = o.id
                         where o.tenant_id = $1 and o.product_id = $2 group by 1) d), '{}') as documents,
            (select to_jsonb(m) from model m) as model,
            (select count(*)::int from passports.passports p join passports.items i on i.passport_id = p.id
              where p.tenant_id = $1 and p.product_id = $2 and i.ceased_at is null) as batteries,
            coalesce((select jsonb_object_agg(s.state, s.n) from (
                        select case when v.error is null then v.state else 'FAILED' end as state, count(*) as n
                          from model m join passports.versions v on v.model_version_id = m.version_id
                         where v.tenant_id = $1 group by 1) s), '{}') as versions`,
    [on.tenantId, productId],
  );
  const { documents, ...rest } = rows[0] as Omit<Progress, 'snapshot'>;
  const snapshot = newest
    ? { snapshot_id: newest.id, state: newest.state, error: newest.error?.message ?? null }
    : null;
  return { documents, snapshot, ...rest };
}
