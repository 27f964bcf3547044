import { PermanentError } from '../../../engine/errors.ts';
import type { JobContext } from '../../../engine/jobs/context.ts';
import type { TenantQueries } from '../../../host/timeline.ts';
import { appendAudit } from '../audit/append.ts';
import { sha256Hex } from '../compile/hash.ts';
import type { Means } from '../means.ts';
import { exportInput, requireExport } from '../store/exports.ts';
import { commitWork } from '../work.ts';
import { keepFailure } from './keep-failure.ts';
import type { ExportJob } from './kinds.ts';
import { withCodes } from './run.ts';

/** EXPORT_PASSPORT: a version as one file for one reader (BPC-1, BPC-16). An export that is made stays as it is. */
export const exportPassportHandler =
  (means: Means) =>
  async ({ exportId }: ExportJob, context: JobContext): Promise<void> => {
    const { tenant } = context;
    try {
      await withCodes(async () => {
        const { versionId, madeAt } = await requireExport(tenant, exportId);
        if (madeAt !== null) return;
        // Loaded with the first export: what draws PDF takes longer to load than most commands run.
        const { makeExport } = await import('../public/export.ts');
        const bytes = await makeExport(tenant, versionId, await exportInput(tenant, exportId), means);
        await commitWork(context, means.fresh, ({ on }) => keep(on, exportId, bytes));
      });
    } catch (error) {
      if (error instanceof PermanentError) await keepFailure(context, 'export', exportId, error);
      throw error;
    }
  };

/** Two jobs of one export make the same bytes: the one that comes second changes nothing. */
async function keep(on: TenantQueries, id: string, bytes: Uint8Array): Promise<void> {
  const sha256 = sha256Hex(bytes);
  const { rowCount } = await on.query(
    `update passports.exports e set bytes = $3, sha256 = $4, size = $5, error = null, made_at = now()
      where e.tenant_id = $1 and e.id = $2 and e.made_at is null`,
    [on.tenantId, id, Buffer.from(bytes), sha256, bytes.length],
  );
  if (rowCount === 1)
    await appendAudit(on, [
      { aggregate: ['export', id], type: 'export.made', data: { sha256, size: bytes.length } },
    ]);
}
