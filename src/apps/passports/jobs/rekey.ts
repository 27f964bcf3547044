import type { TenantQueries } from '../../../host/timeline.ts';
import { appendAudit } from '../audit/append.ts';
import type { Compiled } from '../compile/types.ts';
import type { Means } from '../means.ts';
import { versionInputs } from './compile-inputs.ts';
import { compileVersion } from './compile-passport.ts';
import type { StepVersion } from './told.ts';

/*
 * A version that was requested before its key was rotated away, and is signed after that (decision 31). Its receipt names the
 * key, so it is compiled again with the current one: nobody has seen the receipt that it had. Only for keys whose public
 * key this process knows: a process that has not heard of a newer key yet must not take versions back to its own.
 */

export interface Rekeyed {
  readonly id: string;
  readonly from: string;
  readonly key: string;
  readonly artefacts: Compiled;
}

/** Compiles those again whose key is a former one. Writes nothing. */
export async function compiledForCurrentKey(
  on: TenantQueries,
  versions: readonly StepVersion[],
  means: Means,
): Promise<readonly Rekeyed[]> {
  const { currentId, publicKeys } = means.keys;
  const late = versions.filter(
    ({ signingKey }) => signingKey !== currentId && Object.hasOwn(publicKeys, signingKey),
  );
  if (currentId === undefined || late.length === 0) return [];
  const rekeyed: Rekeyed[] = [];
  for (const input of await versionInputs(
    on,
    late.map(({ id }) => id),
  ))
    rekeyed.push({
      id: input.id,
      from: input.signingKey,
      key: currentId,
      artefacts: await compileVersion(on, { ...input, signingKey: currentId }, means),
    });
  return rekeyed;
}

/** What is signed: the version as it is stored, or as it was compiled again. */
export function withCurrentKey(version: StepVersion, rekeyed: readonly Rekeyed[]): StepVersion {
  const again = rekeyed.find(({ id }) => id === version.id);
  if (!again) return version;
  const { payloadHash, proofHash, receiptHash } = again.artefacts;
  return { ...version, signingKey: again.key, payloadHash, proofHash, receiptHash };
}

/** In the commit that signs them. Guards let it happen to versions without a signature alone. */
export async function storeRekeyed(on: TenantQueries, rekeyed: readonly Rekeyed[]): Promise<void> {
  if (rekeyed.length === 0) return;
  const ids = rekeyed.map(({ id }) => id);
  const texts = (part: 'payload' | 'proof' | 'receipt') =>
    rekeyed.map(({ artefacts }) => Buffer.from(artefacts.bytes[part]).toString('utf8'));
  await on.query(
    `update passports.versions v
        set signing_key = u.key, payload_hash = u.payload, proof_hash = u.proof, receipt_hash = u.receipt
       from unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[]) as u (id, key, payload, proof, receipt)
      where v.tenant_id = $1 and v.id = u.id`,
    [
      on.tenantId,
      ids,
      rekeyed.map(({ key }) => key),
      rekeyed.map(({ artefacts }) => artefacts.payloadHash),
      rekeyed.map(({ artefacts }) => artefacts.proofHash),
      rekeyed.map(({ artefacts }) => artefacts.receiptHash),
    ],
  );
  await on.query(
    `update passports.artefacts a set payload = u.payload, proof = u.proof, receipt = u.receipt
       from unnest($2::uuid[], $3::text[], $4::text[], $5::text[]) as u (id, payload, proof, receipt)
      where a.tenant_id = $1 and a.version_id = u.id`,
    [on.tenantId, ids, texts('payload'), texts('proof'), texts('receipt')],
  );
  await appendAudit(
    on,
    rekeyed.map(({ id, from, key, artefacts: { payloadHash, proofHash, receiptHash } }) => ({
      aggregate: ['version', id],
      type: 'version.rekeyed',
      data: { from, key, payload: payloadHash, proof: proofHash, receipt: receiptHash },
    })),
  );
}
