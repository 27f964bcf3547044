import type { JobContext } from '../../../engine/jobs/context.ts';
import type { TenantQueries } from '../../../host/timeline.ts';
import { appendAudit } from '../audit/append.ts';
import { compile } from '../compile/compile.ts';
import type { Compiled } from '../compile/types.ts';
import { passportError } from '../errors.ts';
import type { Means } from '../means.ts';
import { requireRulePackage } from '../store/rules.ts';
import { commitWork } from '../work.ts';
import { compileInput, type VersionInput, versionInputs } from './compile-inputs.ts';
import { compilePassport, signPassport, type VersionsJob } from './kinds.ts';
import { forVersions } from './run.ts';

/** COMPILE_PASSPORT: facts and rules to payload, proof and receipt (BPC-8). A version that is compiled stays as it is. */
export const compilePassportHandler = (means: Means) => (job: VersionsJob, context: JobContext) =>
  forVersions(compilePassport, job, context, means, async () => {
    const versions = (await versionInputs(context.tenant, job.versions)).filter(
      ({ receiptHash }) => receiptHash === null,
    );
    const compiled: { readonly id: string; readonly artefacts: Compiled }[] = [];
    for (const version of versions)
      compiled.push({ id: version.id, artefacts: await compileVersion(context.tenant, version, means) });
    await commitWork(context, means.fresh, async ({ on, enqueue }) => {
      await store(on, compiled);
      await enqueue(signPassport, job);
    });
    means.observer.versions('compiled', compiled.length);
  });

export async function compileVersion(
  on: TenantQueries,
  version: VersionInput,
  means: Means,
): Promise<Compiled> {
  const { build, rules, snapshots, limits, observer } = means;
  if (version.build !== build)
    throw passportError(
      'BUILD_MISMATCH',
      `version ${version.id} is to be compiled by build "${version.build}"; this is "${build}". Run a worker of that build, ` +
        'or request the version again',
      { expected: version.build, actual: build },
    );
  if (version.rulesState !== 'PUBLISHED' && version.rulesState !== 'DEPRECATED')
    throw passportError(
      'RULE_PKG_NOT_PUBLISHED',
      `rule package ${version.rulesId} is ${version.rulesState}: publish it, or request the version with another package`,
    );
  const { hash, content } = rules.has(version.rulesHash)
    ? { hash: version.rulesHash, content: '' }
    : await requireRulePackage(on, version.rulesId);
  const checked = await rules.get(hash, () => content);
  const input = compileInput(version, await snapshots.get(on, version.snapshotId));
  const start = performance.now();
  const compiled = compile(input, checked, limits);
  observer.compiled((performance.now() - start) / 1000);
  return compiled;
}

async function store(
  on: TenantQueries,
  compiled: readonly { readonly id: string; readonly artefacts: Compiled }[],
): Promise<void> {
  const ids = compiled.map(({ id }) => id);
  const texts = (part: 'payload' | 'proof' | 'receipt') =>
    compiled.map(({ artefacts }) => Buffer.from(artefacts.bytes[part]).toString('utf8'));
  await on.query(
    `insert into passports.artefacts (version_id, tenant_id, payload, proof, receipt)
     select u.id, $1, u.payload, u.proof, u.receipt
       from unnest($2::uuid[], $3::text[], $4::text[], $5::text[]) as u (id, payload, proof, receipt)`,
    [on.tenantId, ids, texts('payload'), texts('proof'), texts('receipt')],
  );
  await on.query(
    `update passports.versions v set payload_hash = u.payload, proof_hash = u.proof, receipt_hash = u.receipt, error = null
       from unnest($2::uuid[], $3::text[], $4::text[], $5::text[]) as u (id, payload, proof, receipt)
      where v.tenant_id = $1 and v.id = u.id`,
    [
      on.tenantId,
      ids,
      compiled.map(({ artefacts }) => artefacts.payloadHash),
      compiled.map(({ artefacts }) => artefacts.proofHash),
      compiled.map(({ artefacts }) => artefacts.receiptHash),
    ],
  );
  await appendAudit(
    on,
    compiled.map(({ id, artefacts: { payloadHash, proofHash, receiptHash } }) => ({
      aggregate: ['version', id],
      type: 'version.compiled',
      data: { payload: payloadHash, proof: proofHash, receipt: receiptHash },
    })),
  );
}
