import { publicKinds } from '../../engine/jobs/internal-kinds.ts';
import type { Job, JobError } from '../../engine/jobs/jobs.ts';
import { readers } from '../../host/roles.ts';
import type { Call } from '../../host/route.ts';

/**
 * Jobs as the caller may see them. A producer sees jobs of internal kinds without their payload and without the text of their
 * errors: these name and quote what an app keeps for others, such as a document of a passport.
 */
export async function seenJobs(
  { caller, scope, services }: Pick<Call<unknown, unknown, unknown>, 'caller' | 'scope' | 'services'>,
  jobs: readonly Job[],
): Promise<readonly Job[]> {
  if (jobs.length === 0 || (readers as readonly string[]).includes(caller.role)) return jobs;
  const open = await publicKinds(
    scope,
    services.host.kinds,
    jobs.map(({ kind }) => kind),
  );
  return jobs.map((job) =>
    open.has(job.kind)
      ? job
      : { ...job, payload: null, lastError: job.lastError && withoutText(job.kind, job.lastError) },
  );
}

const withoutText = (kind: string, error: JobError): JobError => ({
  ...error,
  message: `a job of ${kind} failed with ${error.code}; operators and auditors can read why`,
  stack: null,
});
