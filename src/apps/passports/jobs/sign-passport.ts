import type { JobContext } from '../../../engine/jobs/context.ts';
import { appendAudit } from '../audit/append.ts';
import { hexToBytes } from '../compile/hash.ts';
import { passportError } from '../errors.ts';
import { tellVersions } from '../events.ts';
import type { Means } from '../means.ts';
import { isSignedBy } from '../signing/keys.ts';
import { commitWork } from '../work.ts';
import { generateQr, signPassport, type VersionsJob } from './kinds.ts';
import { compiledForCurrentKey, storeRekeyed, withCurrentKey } from './rekey.ts';
import { forVersions } from './run.ts';
import { stepVersions } from './told.ts';

/**
 * SIGN_PASSPORT: Ed25519 over the 32 bytes of the receipt's hash (BPC-9). A version whose key was rotated away since it was
 * requested is compiled again with the current one and signed in the same commit.
 */
export const signPassportHandler = (means: Means) => (job: VersionsJob, context: JobContext) =>
  forVersions(signPassport, job, context, means, async () => {
    const unsigned = (await stepVersions(context.tenant, job.versions)).filter(
      ({ state }) => state === 'COMPILING',
    );
    const rekeyed = await compiledForCurrentKey(context.tenant, unsigned, means);
    const versions = unsigned.map((version) => withCurrentKey(version, rekeyed));
    const signatures = versions.map(({ signingKey, receiptHash, id }) => {
      const message = hexToBytes(receiptHash) ?? new Uint8Array();
      const signature = means.keys.sign(signingKey, message);
      const publicKey = means.keys.publicKeys[signingKey];
      if (!publicKey || !isSignedBy(publicKey, message, signature))
        throw passportError('SIGNATURE_INVALID', `the signature of version ${id} does not verify`);
      return Buffer.from(signature);
    });
    await commitWork(context, means.fresh, async ({ on, enqueue }) => {
      await storeRekeyed(on, rekeyed);
      await on.query(
        `update passports.versions v set state = 'SIGNED', signature = u.signature, signed_at = now(), error = null
           from unnest($2::uuid[], $3::bytea[]) as u (id, signature) where v.tenant_id = $1 and v.id = u.id`,
        [on.tenantId, versions.map(({ id }) => id), signatures],
      );
      await appendAudit(
        on,
        versions.map(({ id, signingKey }, at) => ({
          aggregate: ['version', id],
          type: 'version.signed',
          data: { key: signingKey, signature: signatures[at]?.toString('hex') ?? '' },
        })),
      );
      await tellVersions(on, 'signed', versions);
      await enqueue(generateQr, job);
    });
    means.observer.versions('signed', versions.length);
  });
