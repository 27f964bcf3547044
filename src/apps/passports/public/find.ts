import type { Queryable } from '../../../engine/database/database.ts';
import type { TenantQueries } from '../../../host/timeline.ts';
import { findPassport, findPassportOf, type StoredPassport, tenantOfGtin } from '../store/passports.ts';
import { findVersions, type PassportVersion, versionAt } from '../store/versions.ts';
import type { LinkedItem, PassportName } from './link.ts';

/** Which tenant's passport it is. Runs outside of any tenant. */
export async function tenantOf(on: Queryable, name: PassportName): Promise<string | undefined> {
  if ('link' in name) return tenantOfGtin(on, name.link.gtin);
  const { rows } = await on.query<{ tenantId: string }>(
    'select p.tenant_id as "tenantId" from passports.passports p where p.id = $1',
    [name.id],
  );
  return rows[0]?.tenantId;
}

export const findNamed = (on: TenantQueries, name: PassportName): Promise<StoredPassport | undefined> =>
  'link' in name ? findPassportOf(on, name.link.gtin, name.link.serial) : findPassport(on, name.id);

/** A version that was published once: COMPILING and SIGNED ones are nobody's business. */
const published = `v.state in ('ACTIVE', 'SUPERSEDED', 'REVOKED') and v.active_at is not null and v.receipt_hash is not null`;

/** Which version is meant: the one that counts, one by its id, or the one that counted at a time. */
export type Wanted = { readonly current: true } | { readonly versionId: string } | { readonly at: Date };

/** Without one that counts, the last that did: its page says that it was revoked. */
export async function publishedVersion(
  on: TenantQueries,
  passportId: string,
  wanted: Wanted,
): Promise<PassportVersion | undefined> {
  if ('at' in wanted) return versionAt(on, passportId, wanted.at);
  const { rows } = await on.query<{ id: string }>(
    `select v.id from passports.versions v
      where v.tenant_id = $1 and v.passport_id = $2 and ${published} and ($3::uuid is null or v.id = $3)
      order by (v.state = 'ACTIVE') desc, v.number desc limit 1`,
    [on.tenantId, passportId, 'versionId' in wanted ? wanted.versionId : null],
  );
  const [version] = await findVersions(
    on,
    rows.map(({ id }) => id),
  );
  return version;
}

export interface VersionEnds {
  readonly ended: readonly number[];
  readonly all: readonly number[];
  readonly changedAt: Date;
}

/** What a status list says, from all versions of a passport that were ever published. */
export async function versionEnds(on: TenantQueries, passportId: string): Promise<VersionEnds | undefined> {
  const { rows } = await on.query<{ number: number; isEnded: boolean; changedAt: Date }>(
    `select v.number, v.state <> 'ACTIVE' as "isEnded", greatest(v.active_at, v.ended_at) as "changedAt"
       from passports.versions v where v.tenant_id = $1 and v.passport_id = $2 and ${published} order by v.number`,
    [on.tenantId, passportId],
  );
  const last = rows.map(({ changedAt }) => changedAt.getTime());
  return rows.length === 0
    ? undefined
    : {
        ended: rows.filter(({ isEnded }) => isEnded).map(({ number }) => number),
        all: rows.map(({ number }) => number),
        changedAt: new Date(Math.max(...last)),
      };
}

/**
 * Which of these have a passport that was published. Sees all tenants: for each GTIN the one that registered it first
 * answers. Relies on products_by_gtin and the unique keys of passports.
 */
export async function publishedLinks(
  on: Queryable,
  links: readonly LinkedItem[],
): Promise<readonly LinkedItem[]> {
  const { rows } = await on.query<LinkedItem>(
    `select u.gtin, u.serial
       from unnest($1::text[], $2::text[]) with ordinality as u (gtin, serial, n)
      cross join lateral (select o.tenant_id, o.id from passports.products o
                           where o.gtin = u.gtin order by o.created_at, o.tenant_id limit 1) o
      cross join lateral (
        select p.id from passports.passports p
         where u.serial is not null and p.tenant_id = o.tenant_id and p.product_id = o.id and p.serial = u.serial
        union all
        select p.id from passports.passports p
         where u.serial is null and p.tenant_id = o.tenant_id and p.product_id = o.id and p.serial is null) p
      where exists (select 1 from passports.versions v where v.passport_id = p.id and ${published})
      order by u.n`,
    [links.map(({ gtin }) => gtin), links.map(({ serial }) => serial)],
  );
  return rows;
}
