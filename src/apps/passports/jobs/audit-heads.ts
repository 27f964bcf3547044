import type { Database } from '../../../engine/database/database.ts';
import { asTenant } from '../../../engine/database/tenant.ts';
import { type AnyKind, defineKind } from '../../../engine/jobs/kind.ts';
import type { NewSchedule } from '../../../engine/schedules/schedules.ts';
import { extendHead } from '../audit/head.ts';
import type { Means } from '../means.ts';

const name = 'passports.audit-heads';

/** Signs a head over the audit events that none covers yet, for each tenant in a transaction of its own (BPC-14). */
export const auditHeadsKind = (database: Database, { keys }: Pick<Means, 'keys'>): AnyKind =>
  defineKind({
    name,
    queue: 'passport-audit',
    priority: 0,
    scope: 'all',
    acrossTenants:
      'one round looks for new audit events of all tenants, and covers those of each under its own tenant',
    handler: async (_, { signal }) => {
      if (keys.currentId === undefined) return;
      for (const tenantId of await uncoveredTenants(database))
        for (let covered = 1; covered > 0 && !signal.aborted; )
          covered = await asTenant(database, tenantId, (scope) => extendHead(scope, keys));
    },
  });

/** Any process can run it; rounds that pile up while there is no worker become one. */
export const auditHeadsSchedule = (cron: string): NewSchedule => ({
  name,
  cron,
  kind: name,
  payload: {},
  lane: name,
  latestOnly: true,
});

/** One step in the index audit_uncovered for each tenant, however many events wait. */
async function uncoveredTenants(database: Database): Promise<readonly string[]> {
  const { rows } = await database.query<{ tenantId: string }>(
    `with recursive tenants (tenant_id) as (
       (select e.tenant_id from passports.audit_events e where e.head is null order by e.tenant_id limit 1)
       union all
       select (select e.tenant_id from passports.audit_events e
                where e.head is null and e.tenant_id > t.tenant_id order by e.tenant_id limit 1)
         from tenants t where t.tenant_id is not null)
     select t.tenant_id as "tenantId" from tenants t where t.tenant_id is not null`,
  );
  return rows.map(({ tenantId }) => tenantId);
}
