import type { TenantQueries } from '../../../host/timeline.ts';
import type { ToldVersion } from '../events.ts';
import type { VersionState } from '../store/versions.ts';

/** What the steps after the compile need of a version. */
export interface StepVersion extends ToldVersion {
  readonly state: VersionState;
  readonly signingKey: string;
  readonly payloadHash: string;
  readonly proofHash: string;
  readonly hasQr: boolean;
}

const columns = `v.id, v.passport_id as "passportId", v.number, v.state, v.signing_key as "signingKey", p.serial,
  o.gtin, v.payload_hash as "payloadHash", v.proof_hash as "proofHash", v.receipt_hash as "receiptHash",
  v.qr_png is not null as "hasQr"`;

export async function stepVersions(
  on: TenantQueries,
  ids: readonly string[],
): Promise<readonly StepVersion[]> {
  const { rows } = await on.query<StepVersion>(
    `select ${columns} from passports.versions v join passports.passports p on p.id = v.passport_id
       join passports.products o on o.tenant_id = p.tenant_id and o.id = p.product_id
      where v.tenant_id = $1 and v.id = any ($2::uuid[]) and v.receipt_hash is not null order by v.id`,
    [on.tenantId, ids],
  );
  return rows;
}
