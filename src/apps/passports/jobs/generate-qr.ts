import type { JobContext } from '../../../engine/jobs/context.ts';
import { appendAudit } from '../audit/append.ts';
import { sha256Hex } from '../compile/hash.ts';
import { formatQr } from '../compile/qr.ts';
import type { Means } from '../means.ts';
import { qrPng } from '../qr/png.ts';
import { commitWork } from '../work.ts';
import { activateVersion, generateQr, type VersionsJob } from './kinds.ts';
import { forVersions } from './run.ts';
import { stepVersions } from './told.ts';

/** GENERATE_QR: the document code as PNG, stored with the version (BPC-10). */
export const generateQrHandler = (means: Means) => (job: VersionsJob, context: JobContext) =>
  forVersions(generateQr, job, context, means, async () => {
    const versions = (await stepVersions(context.tenant, job.versions)).filter(
      ({ state, hasQr }) => state === 'SIGNED' && !hasQr,
    );
    const texts = versions.map((version) => formatQr({ ...version, passportVersion: version.id }));
    const images = texts.map((text) => Buffer.from(qrPng(text)));
    await commitWork(context, means.fresh, async ({ on, enqueue }) => {
      await on.query(
        `update passports.versions v set qr_text = u.qr, qr_png = u.png, error = null
           from unnest($2::uuid[], $3::text[], $4::bytea[]) as u (id, qr, png) where v.tenant_id = $1 and v.id = u.id`,
        [on.tenantId, versions.map(({ id }) => id), texts, images],
      );
      await appendAudit(
        on,
        versions.map(({ id }, at) => ({
          aggregate: ['version', id],
          type: 'version.labelled',
          data: { png: sha256Hex(images[at] ?? new Uint8Array()) },
        })),
      );
      await enqueue(activateVersion, job);
    });
    means.observer.versions('labelled', versions.length);
  });
