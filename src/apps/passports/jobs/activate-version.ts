import type { JobContext } from '../../../engine/jobs/context.ts';
import type { TenantQueries } from '../../../host/timeline.ts';
import { appendAudit } from '../audit/append.ts';
import { tellVersions } from '../events.ts';
import type { Means } from '../means.ts';
import { commitWork } from '../work.ts';
import { requestItems } from '../write/issue.ts';
import { activateVersion, type VersionsJob } from './kinds.ts';
import { forVersions } from './run.ts';
import { stepVersions } from './told.ts';

/**
 * The last step: the version counts, and the one that counted until now is superseded, in one commit. A version that comes
 * after a newer one has become active stays SIGNED.
 */
export const activateVersionHandler = (means: Means) => (job: VersionsJob, context: JobContext) =>
  forVersions(activateVersion, job, context, means, async () => {
    const activated = await commitWork(context, means.fresh, async (work) => {
      const { on } = work;
      const locked = await lockedAndReady(on, job.versions);
      const ready = locked.map(({ id }) => id);
      const older = await supersede(
        on,
        locked.map(({ passportId }) => passportId),
      );
      await on.query(
        `update passports.versions v set state = 'ACTIVE', active_at = now(), error = null
          where v.tenant_id = $1 and v.id = any ($2::uuid[])`,
        [on.tenantId, ready],
      );
      await appendAudit(on, [
        ...older.map((id) => ({
          aggregate: ['version', id] as const,
          type: 'version.superseded',
          data: {},
        })),
        ...ready.map((id) => ({ aggregate: ['version', id] as const, type: 'version.active', data: {} })),
      ]);
      await tellVersions(on, 'superseded', await stepVersions(on, older));
      await tellVersions(on, 'active', await stepVersions(on, ready));
      const [model] = ready;
      if (job.next?.withItems && model !== undefined) await requestItems(work, model, job.next);
      return ready.length;
    });
    means.observer.versions('active', activated);
  });

interface Ready {
  readonly id: string;
  readonly passportId: string;
}

/**
 * Locks passports in the order of their ids: two versions of one passport become active one after another. Relies on the
 * primary keys and on the numbers of versions within a passport (versions_passport_id_number_key), looked up one by one: as
 * a join it would be planned by statistics that a batch of new versions has made wrong.
 */
async function lockedAndReady(on: TenantQueries, ids: readonly string[]): Promise<readonly Ready[]> {
  await on.query(
    `select 1 from passports.passports p
      where p.tenant_id = $1
        and p.id = any (array(select v.passport_id from passports.versions v where v.id = any ($2::uuid[])))
      order by p.id for no key update`,
    [on.tenantId, ids],
  );
  const { rows } = await on.query<Ready>(
    `select v.id, v.passport_id as "passportId" from passports.versions v
      where v.tenant_id = $1 and v.id = any ($2::uuid[]) and v.state = 'SIGNED' and v.qr_png is not null
        and v.number = (select max(n.number) from passports.versions n
                         where n.passport_id = v.passport_id
                           and (n.state in ('ACTIVE', 'SUPERSEDED') or n.id = any ($2::uuid[])))
      order by v.id`,
    [on.tenantId, ids],
  );
  return rows;
}

/** Relies on one_active_version. */
async function supersede(on: TenantQueries, passportIds: readonly string[]): Promise<readonly string[]> {
  const { rows } = await on.query<{ id: string }>(
    `update passports.versions v set state = 'SUPERSEDED', ended_at = now()
      where v.tenant_id = $1 and v.state = 'ACTIVE' and v.passport_id = any ($2::uuid[])
      returning v.id`,
    [on.tenantId, passportIds],
  );
  return rows.map(({ id }) => id).sort();
}
