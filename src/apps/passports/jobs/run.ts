import { PermanentError } from '../../../engine/errors.ts';
import type { JobContext } from '../../../engine/jobs/context.ts';
import type { Kind } from '../../../engine/jobs/kind.ts';
import { appendAudit } from '../audit/append.ts';
import { asPassportError } from '../errors.ts';
import type { Means } from '../means.ts';
import { commitWork } from '../work.ts';
import type { VersionsJob } from './kinds.ts';

/** Errors of compiler and database as codes of BPC-13, for handlers of one thing. */
export async function withCodes<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    throw asPassportError(error);
  }
}

/**
 * Runs a job of several versions. If one of them cannot be done for good, none is: each gets a job of its own, so that the
 * others go on, and the one that fails is named by its job. Its row says why, too.
 */
export async function forVersions(
  kind: Kind<VersionsJob>,
  job: VersionsJob,
  context: JobContext,
  means: Means,
  work: () => Promise<void>,
): Promise<void> {
  try {
    await withCodes(work);
  } catch (error) {
    if (!(error instanceof PermanentError)) throw error;
    const [only] = job.versions;
    if (job.versions.length > 1) {
      await commitWork(context, means.fresh, async ({ enqueue }) => {
        for (const id of job.versions)
          await enqueue(kind, { versions: [id], ...(job.next && { next: job.next }) });
      });
      return;
    }
    if (only !== undefined) await keepError(context, only, error);
    means.observer.versions('failed', 1);
    throw error;
  }
}

/** Written once, also if the job runs again after a crash. */
const keepError = (
  { tenant }: JobContext,
  versionId: string,
  { code, message }: PermanentError,
): Promise<void> =>
  tenant.transaction(async (on) => {
    const { rowCount } = await on.query(
      `update passports.versions v set error = $3
        where v.tenant_id = $1 and v.id = $2 and v.error is distinct from $3::jsonb`,
      [on.tenantId, versionId, JSON.stringify({ code, message })],
    );
    if (rowCount === 1)
      await appendAudit(on, [
        { aggregate: ['version', versionId], type: 'version.failed', data: { code, message } },
      ]);
  });
