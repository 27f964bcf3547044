import type { PermanentError } from '../../../engine/errors.ts';
import type { JobContext } from '../../../engine/jobs/context.ts';
import { appendAudit } from '../audit/append.ts';
import type { Source } from '../compile/types.ts';
import type { Failure } from '../store/snapshots.ts';

/** What can fail for good besides versions, with its table and the column that says that it is done. */
const tables = {
  snapshot: ['snapshots', 'sealed_at'],
  export: ['exports', 'made_at'],
} as const;

/**
 * Writes into the row why it cannot be made, with the audit event that binds it. Once, also if the job runs again after a
 * crash; what is done already keeps no error.
 */
export async function keepFailure(
  { tenant }: JobContext,
  aggregate: keyof typeof tables,
  id: string,
  { code, message, details }: PermanentError,
): Promise<void> {
  const [table, doneAt] = tables[aggregate];
  const failure: Failure = { code, message, problems: placesIn(details) };
  await tenant.transaction(async (on) => {
    const { rows } = await on.query<{ digest: string }>(
      `update passports.${table} t set error = $3
        where t.tenant_id = $1 and t.id = $2 and t.${doneAt} is null and t.error is distinct from $3::jsonb
       returning passports.digest(t.error::text) as digest`,
      [on.tenantId, id, JSON.stringify(failure)],
    );
    const [row] = rows;
    if (row)
      await appendAudit(on, [
        { aggregate: [aggregate, id], type: `${aggregate}.failed`, data: { code, digest: row.digest } },
      ]);
  });
}

/** The sources of facts that contradict each other (DUPLICATE_FACT). */
const placesIn = (details: PermanentError['details']): Failure['problems'] =>
  ((details?.sources ?? []) as readonly (readonly Source[])[])
    .flat()
    .map(({ document, row, column }) => ({ document, row, column }));
