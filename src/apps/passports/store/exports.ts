import type { Page, PageRequest } from '../../../engine/paging.ts';
import type { TenantQueries } from '../../../host/timeline.ts';
import type { Hash, Reader } from '../compile/types.ts';
import { notFound, passportError } from '../errors.ts';
import type { Language } from '../page/texts.ts';
import type { LabelSize } from '../print/sizes.ts';
import type { AsOf } from '../public/load.ts';
import { textPage, textPageOf } from './page.ts';
import type { Failure } from './snapshots.ts';

/** Forms of an exported passport, with the type of content and the ending of a file. */
export const exportFormats = {
  bundle: ['application/x-tar', 'tar'],
  catenax: ['application/json', 'catenax.json'],
  dpp: ['application/json', 'dpp.json'],
  html: ['text/html', 'html'],
  json: ['application/json', 'json'],
  jsonld: ['application/ld+json', 'jsonld'],
  pdf: ['application/pdf', 'pdf'],
  'vc+jwt': ['application/vc+jwt', 'jwt'],
} as const;
export type ExportFormat = keyof typeof exportFormats;
export const exportFormatNames = Object.keys(exportFormats) as [ExportFormat, ...ExportFormat[]];

export const exportStates = ['REQUESTED', 'READY', 'FAILED'] as const;
export type ExportState = (typeof exportStates)[number];

/** Everything besides the version that decides the bytes of an export; stored as canonical JSON. */
export interface ExportInput {
  readonly format: ExportFormat;
  readonly reader: Reader;
  readonly language: Language;
  readonly label: LabelSize | null;
  /** For Catena-X: JSON, as a text. */
  readonly supplement: string | null;
  /** What can change later, as it was when the export was requested. */
  readonly asOf: AsOf;
}

/** An export without its bytes. */
export interface StoredExport {
  readonly id: string;
  readonly versionId: string;
  readonly passportId: string;
  /** For the name of a file. */
  readonly serial: string | null;
  readonly gtin: string;
  readonly format: ExportFormat;
  readonly reader: Reader;
  readonly state: ExportState;
  readonly sha256: Hash | null;
  readonly size: number | null;
  readonly error: Failure | null;
  readonly createdAt: Date;
  readonly madeAt: Date | null;
}

const columns = `e.id, e.version_id as "versionId", v.passport_id as "passportId", p.serial, o.gtin, e.format, e.reader,
  case when e.made_at is not null then 'READY' when e.error is not null then 'FAILED' else 'REQUESTED' end as state,
  e.sha256, e.size, e.error, e.created_at as "createdAt", e.made_at as "madeAt"`;
const from = `from passports.exports e
  join passports.versions v on v.id = e.version_id
  join passports.passports p on p.id = v.passport_id
  join passports.products o on o.tenant_id = p.tenant_id and o.id = p.product_id`;

export async function requireExport(on: TenantQueries, id: string): Promise<StoredExport> {
  const { rows } = await on.query<StoredExport>(
    `select ${columns} ${from} where e.tenant_id = $1 and e.id = $2`,
    [on.tenantId, id],
  );
  if (!rows[0]) throw notFound('export', id);
  return rows[0];
}

export async function exportInput(on: TenantQueries, id: string): Promise<ExportInput> {
  const { rows } = await on.query<{ input: string }>(
    'select e.input from passports.exports e where e.tenant_id = $1 and e.id = $2',
    [on.tenantId, id],
  );
  if (!rows[0]) throw notFound('export', id);
  return JSON.parse(rows[0].input) as ExportInput;
}

/** Throws EXPORT_NOT_READY with what to do while there are none. */
export async function exportBytes(
  on: TenantQueries,
  { id, state, error }: StoredExport,
): Promise<Uint8Array> {
  const { rows } = await on.query<{ bytes: Buffer | null }>(
    'select e.bytes from passports.exports e where e.tenant_id = $1 and e.id = $2',
    [on.tenantId, id],
  );
  const bytes = rows[0]?.bytes;
  if (bytes) return bytes;
  throw passportError(
    'EXPORT_NOT_READY',
    error
      ? `export ${id} could not be made (${error.code}: ${error.message}). Remove the cause and request it again`
      : `export ${id} is being made: ask again when its state is READY`,
    { state },
  );
}

/** By id. Relies on the primary key, and for one version on the unique key that begins with it. */
export async function listExports(
  on: TenantQueries,
  filter: { readonly versionId?: string } = {},
  page: PageRequest = {},
): Promise<Page<StoredExport>> {
  const { size, fetch, cursor } = textPage(page);
  const { rows } = await on.query<StoredExport>(
    `select ${columns} ${from}
      where e.tenant_id = $1 and ($2::uuid is null or e.version_id = $2) and ($3 = '' or e.id > nullif($3, '')::uuid)
      order by e.id limit $4`,
    [on.tenantId, filter.versionId ?? null, cursor, fetch],
  );
  return textPageOf(rows, size, ({ id }) => id);
}
