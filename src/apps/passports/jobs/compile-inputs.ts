import type { TenantQueries } from '../../../host/timeline.ts';
import type { CompileInput, Hash, Item, Product, Snapshot } from '../compile/types.ts';
import { notFound, passportError } from '../errors.ts';
import type { VersionState } from '../store/versions.ts';

/** Everything that a compile of a version needs, its secret salt included. */
export interface VersionInput {
  readonly id: string;
  readonly state: VersionState;
  readonly passportId: string;
  readonly snapshotId: string;
  readonly rulesId: string;
  readonly rulesHash: Hash;
  readonly rulesState: string;
  readonly modelVersionId: string | null;
  readonly modelReceiptHash: Hash | null;
  readonly product: string;
  readonly item: string | null;
  readonly issuedAt: string;
  readonly build: string;
  readonly signingKey: string;
  readonly salt: string;
  readonly payloadHash: Hash | null;
  readonly proofHash: Hash | null;
  readonly receiptHash: Hash | null;
  readonly signature: Buffer | null;
}

export async function versionInputs(
  on: TenantQueries,
  ids: readonly string[],
): Promise<readonly VersionInput[]> {
  const { rows } = await on.query<VersionInput>(
    `select v.id, v.state, v.passport_id as "passportId", v.snapshot_id as "snapshotId", v.rules_id as "rulesId",
            r.hash as "rulesHash", r.state as "rulesState", v.model_version_id as "modelVersionId",
            (select m.receipt_hash from passports.versions m where m.id = v.model_version_id) as "modelReceiptHash", v.product, v.item, v.issued_at as "issuedAt", v.build,
            v.signing_key as "signingKey", v.salt, v.payload_hash as "payloadHash", v.proof_hash as "proofHash",
            v.receipt_hash as "receiptHash", v.signature
       from passports.versions v
       join passports.rule_packages r on r.id = v.rules_id
      where v.tenant_id = $1 and v.id = any ($2::uuid[]) order by v.id`,
    [on.tenantId, ids],
  );
  const missing = ids.find((id) => !rows.some((row) => row.id === id));
  if (missing !== undefined) throw notFound('version', missing);
  return rows;
}

export function compileInput(version: VersionInput, snapshot: Snapshot): CompileInput {
  const { id, passportId, modelVersionId, modelReceiptHash, issuedAt, build, signingKey, salt } = version;
  if (modelVersionId !== null && modelReceiptHash === null)
    throw passportError('VALIDATION_ERROR', `the model's version ${modelVersionId} is not compiled yet`);
  return {
    passport: { id: passportId, version: id },
    snapshot,
    product: JSON.parse(version.product) as Product,
    item: version.item === null ? null : (JSON.parse(version.item) as Item),
    model:
      modelVersionId === null || modelReceiptHash === null
        ? null
        : { version: modelVersionId, receipt_hash: modelReceiptHash },
    issuedAt,
    build,
    signingKey,
    salt,
  };
}
