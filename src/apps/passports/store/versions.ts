import type { Page, PageRequest } from '../../../engine/paging.ts';
import type { TenantQueries } from '../../../host/timeline.ts';
import type { Hash, Item, Payload, Product, Proof, Receipt } from '../compile/types.ts';
import { notFound } from '../errors.ts';
import { textPage, textPageOf } from './page.ts';

export const versionStates = ['COMPILING', 'SIGNED', 'ACTIVE', 'SUPERSEDED', 'REVOKED'] as const;
export type VersionState = (typeof versionStates)[number];

/** A version of a passport without its large parts. The salt is secret and read for compile and replay alone. */
export interface PassportVersion {
  readonly id: string;
  readonly passportId: string;
  readonly number: number;
  readonly state: VersionState;
  readonly snapshotId: string;
  readonly rulesId: string;
  readonly modelVersionId: string | null;
  /** As they were when it was compiled. */
  readonly product: Product;
  readonly item: Item | null;
  /** RFC 3339 in UTC with seconds. */
  readonly issuedAt: string;
  readonly build: string;
  readonly signingKey: string;
  readonly payloadHash: Hash | null;
  readonly proofHash: Hash | null;
  readonly receiptHash: Hash | null;
  /** Ed25519 over the 32 bytes of the receipt's hash. */
  readonly signature: Uint8Array | null;
  readonly qrText: string | null;
  /** Why it could not be finished. */
  readonly error: { readonly code: string; readonly message: string } | null;
  /** Why it was revoked. */
  readonly reason: string | null;
  readonly createdAt: Date;
  readonly signedAt: Date | null;
  readonly activeAt: Date | null;
  readonly endedAt: Date | null;
}

/** Canonical JSON, as hashed, and parsed. Payload and proof leave the house redacted only. */
export interface VersionArtefacts {
  readonly texts: { readonly payload: string; readonly proof: string; readonly receipt: string };
  readonly payload: Payload;
  readonly proof: Proof;
  readonly receipt: Receipt;
  /** Document code, border 0; null until it was made. */
  readonly qrPng: Uint8Array | null;
}

interface VersionRow extends Omit<PassportVersion, 'product' | 'item'> {
  readonly product: string;
  readonly item: string | null;
}

const columns = `v.id, v.passport_id as "passportId", v.number, v.state, v.snapshot_id as "snapshotId", v.rules_id as "rulesId",
  v.model_version_id as "modelVersionId", v.product, v.item, v.issued_at as "issuedAt", v.build,
  v.signing_key as "signingKey", v.payload_hash as "payloadHash", v.proof_hash as "proofHash",
  v.receipt_hash as "receiptHash", v.signature, v.qr_text as "qrText", v.error, v.reason, v.created_at as "createdAt",
  v.signed_at as "signedAt", v.active_at as "activeAt", v.ended_at as "endedAt"`;

const versionOf = (row: VersionRow): PassportVersion => ({
  ...row,
  product: JSON.parse(row.product) as Product,
  item: row.item === null ? null : (JSON.parse(row.item) as Item),
});

export async function findVersions(
  on: TenantQueries,
  ids: readonly string[],
): Promise<readonly PassportVersion[]> {
  const { rows } = await on.query<VersionRow>(
    `select ${columns} from passports.versions v where v.tenant_id = $1 and v.id = any ($2::uuid[]) order by v.id`,
    [on.tenantId, ids],
  );
  return rows.map(versionOf);
}

export async function requireVersion(on: TenantQueries, id: string): Promise<PassportVersion> {
  const [version] = await findVersions(on, [id]);
  if (!version) throw notFound('version', id);
  return version;
}

/** The versions of a passport, newest first. `cursor` is the number of the last one of the page before. */
export async function versionsOf(
  on: TenantQueries,
  passportId: string,
  { limit = 50, cursor }: PageRequest = {},
): Promise<Page<PassportVersion>> {
  const size = Math.min(Math.max(limit, 1), 200);
  const { rows } = await on.query<VersionRow>(
    `select ${columns} from passports.versions v
      where v.tenant_id = $1 and v.passport_id = $2 and ($3::int is null or v.number < $3)
      order by v.number desc limit $4`,
    [on.tenantId, passportId, cursor ?? null, size + 1],
  );
  return textPageOf(rows.map(versionOf), size, ({ number }) => String(number));
}

/** The version that was ACTIVE at a time. */
export async function versionAt(
  on: TenantQueries,
  passportId: string,
  at: Date,
): Promise<PassportVersion | undefined> {
  const { rows } = await on.query<VersionRow>(
    `select ${columns} from passports.versions v
      where v.tenant_id = $1 and v.passport_id = $2 and v.active_at <= $3 and (v.ended_at is null or v.ended_at > $3)
      order by v.number desc limit 1`,
    [on.tenantId, passportId, at],
  );
  return rows[0] && versionOf(rows[0]);
}

export async function listVersions(
  on: TenantQueries,
  filter: {
    readonly state?: VersionState;
    readonly productId?: string;
    readonly passportId?: string;
  } = {},
  page: PageRequest = {},
): Promise<Page<PassportVersion>> {
  const { size, fetch, cursor } = textPage(page);
  const { rows } = await on.query<VersionRow>(
    `select ${columns} from passports.versions v join passports.passports p on p.id = v.passport_id
      where v.tenant_id = $1 and ($2::text is null or v.state = $2) and ($3::text is null or p.product_id = $3)
        and ($4::uuid is null or v.passport_id = $4)
        and ($5 = '' or v.id > nullif($5, '')::uuid) order by v.id limit $6`,
    [on.tenantId, filter.state ?? null, filter.productId ?? null, filter.passportId ?? null, cursor, fetch],
  );
  return textPageOf(rows.map(versionOf), size, ({ id }) => id);
}

/** Undefined while the version is not compiled. */
export async function artefactsOf(
  on: TenantQueries,
  versionId: string,
): Promise<VersionArtefacts | undefined> {
  const { rows } = await on.query<{ payload: string; proof: string; receipt: string; qrPng: Buffer | null }>(
    `select a.payload, a.proof, a.receipt, v.qr_png as "qrPng"
       from passports.artefacts a join passports.versions v on v.id = a.version_id
      where a.tenant_id = $1 and a.version_id = $2`,
    [on.tenantId, versionId],
  );
  const [row] = rows;
  if (!row) return undefined;
  const { qrPng, ...texts } = row;
  return {
    texts,
    payload: JSON.parse(texts.payload) as Payload,
    proof: JSON.parse(texts.proof) as Proof,
    receipt: JSON.parse(texts.receipt) as Receipt,
    qrPng,
  };
}
