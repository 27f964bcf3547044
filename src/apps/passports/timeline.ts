import type { Caller } from '../../host/route.ts';
import type { Moment, Subject, SubjectPage, TenantQueries } from '../../host/timeline.ts';
import { readerOf } from './access.ts';
import type { JsonObject } from './compile/types.ts';

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const sha256 = /^[0-9a-f]{64}$/i;

/** The aggregates whose events tell of a subject. Each begins at an index: primary keys, items_by_serial, document_versions_by_hash. */
const aggregates = {
  passport: `
    select 'passport' as type, p.id::text as id from passports.passports p where p.tenant_id = $1 and p.id = $2::uuid
    union all
    select 'version', v.id::text from passports.versions v where v.tenant_id = $1 and v.passport_id = $2::uuid`,
  battery: `
    select 'passport' as type, i.passport_id::text as id from passports.items i where i.tenant_id = $1 and i.serial = $2
    union all
    select 'version', v.id::text from passports.items i join passports.versions v on v.passport_id = i.passport_id
     where i.tenant_id = $1 and i.serial = $2`,
  document: `
    select 'document' as type, v.id::text as id from passports.document_versions v
     where v.tenant_id = $1 and (v.id = $2::uuid or v.document_id = $2::uuid)`,
  documentByHash: `
    select 'document' as type, v.id::text as id from passports.document_versions v where v.tenant_id = $1 and v.sha256 = $2`,
} as const;

const texts: Readonly<Record<string, string>> = {
  'passport.item_added': 'the battery was registered',
  'passport.status_changed': 'the status of the battery was changed',
  'passport.predecessors_added': 'batteries that it was made from were named',
  'passport.ceased': 'the battery was recycled: its passport has ceased',
  'version.requested': 'a version was asked for',
  'version.compiled': 'a version was compiled',
  'version.rekeyed': 'a version was compiled again for the current signing key',
  'version.signed': 'a version was signed',
  'version.labelled': 'the codes of a version were made',
  'version.active': 'a version became active',
  'version.superseded': 'a version was superseded',
  'version.failed': 'a version could not be finished',
  'version.revoked': 'a version was revoked',
  'document.uploaded': 'the document was uploaded',
  'document.validated': 'the document was read: its facts can be used',
  'document.rejected': 'the document was refused',
};

/** What happened to `passport:<id>`, `battery:<serial number>` or `document:<id or SHA-256>`, from the audit. */
export async function momentsOf(
  on: TenantQueries,
  { type, id }: Subject,
  { limit, before }: SubjectPage,
): Promise<readonly Moment[]> {
  const asked = aggregatesOf(type, id);
  if (asked === undefined) return [];
  const { rows } = await on.query<{
    aggregate: string;
    id: string;
    seq: number;
    type: string;
    at: string;
    data: string;
  }>(
    // Moments carry milliseconds: those of the same one come together, so that a page can end between two.
    `select m.aggregate_type as aggregate, m.aggregate_id as id, m.seq, m.type, m.at, m.data
       from (select e.* from (${asked}) a
               join passports.audit_events e on e.tenant_id = $1 and e.aggregate_type = a.type and e.aggregate_id = a.id
              where $3::text is null or e.at < $3
              order by left(e.at, 23) desc fetch first ($4::int) rows with ties) m
      order by m.at desc, m.aggregate_type, m.aggregate_id, m.seq desc`,
    [
      on.tenantId,
      type === 'battery' ? id : id.toLowerCase(),
      before?.at.toISOString().slice(0, 23) ?? null,
      limit,
    ],
  );
  return rows.map((row) => ({
    id: `${row.aggregate}:${row.id}#${row.seq}`,
    type: row.type,
    at: new Date(row.at),
    text: texts[row.type] ?? row.type,
    details: { [row.aggregate]: row.id, ...(JSON.parse(row.data) as JsonObject) },
  }));
}

function aggregatesOf(type: string, id: string): string | undefined {
  if (type === 'battery') return aggregates.battery;
  if (type === 'passport') return uuid.test(id) ? aggregates.passport : undefined;
  if (type !== 'document') return undefined;
  if (sha256.test(id)) return aggregates.documentByHash;
  return uuid.test(id) ? aggregates.document : undefined;
}

/**
 * Batteries by serial number, passports by id, documents by id, name or SHA-256: those that begin with this text. Names and
 * hashes of documents are for those who may read the documents.
 */
export async function passportsLike(
  on: TenantQueries,
  text: string,
  role: Caller['role'],
): Promise<readonly Subject[]> {
  const { rows } = await on.query<{ type: string; id: string; title: string }>(
    `(select 'battery' as type, i.serial as id, 'battery ' || i.serial || ' of GTIN ' || i.gtin as title
        from passports.items i where i.tenant_id = $1 and i.serial ^@ $2 order by i.serial limit 10)
     union all
     (select 'passport', p.id::text, case when p.serial is null then 'passport of the model ' || p.product_id
                                          else 'passport of battery ' || p.serial end
        from passports.passports p where p.tenant_id = $1 and length($2) >= 8 and p.id::text ^@ lower($2) order by 2 limit 10)
     union all
     (select 'document', d.id::text, 'document ' || d.name || ' of ' || d.product_id
        from passports.documents d where $3 and d.tenant_id = $1 and (d.name ^@ $2 or (length($2) >= 8 and d.id::text ^@ lower($2)))
       order by d.name, d.id limit 10)
     union all
     (select 'document', v.sha256, 'document with SHA-256 ' || v.sha256
        from passports.document_versions v where $3 and v.tenant_id = $1 and length($2) >= 8 and v.sha256 ^@ lower($2)
       order by v.sha256 limit 10)`,
    [on.tenantId, text, readerOf({ role, access: null }) === 'owner'],
  );
  return rows;
}
