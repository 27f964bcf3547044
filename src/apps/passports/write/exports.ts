import { appendAudit } from '../audit/append.ts';
import { canonical } from '../compile/canonical.ts';
import { sha256Hex, utf8 } from '../compile/hash.ts';
import { type Json, type JsonObject, type Reader, readerPoints } from '../compile/types.ts';
import { passportError } from '../errors.ts';
import { exportPassport } from '../jobs/kinds.ts';
import type { Language } from '../page/texts.ts';
import type { LabelSize } from '../print/sizes.ts';
import { asOfNow } from '../public/load.ts';
import type { ExportFormat, ExportInput } from '../store/exports.ts';
import { requirePassport } from '../store/passports.ts';
import { type PassportVersion, requireVersion } from '../store/versions.ts';
import type { Work } from '../work.ts';

export interface ExportRequest {
  readonly format: ExportFormat;
  readonly reader: Reader;
  readonly language: Language;
  /** For `pdf`: a label of this size instead of the pages. */
  readonly label?: LabelSize;
  /** For `catenax`: what the aspect needs and the passport does not have. */
  readonly supplement?: JsonObject;
}

export interface RequestedExport {
  readonly id: string;
  /** It was requested before, and nothing has changed since: the same export. */
  readonly existing: boolean;
}

/**
 * Enqueues EXPORT_PASSPORT. What can change later (state, individual data, predecessors) is fixed now, so that a job that runs
 * late or again makes the same bytes. The same request again is the same export; one that has failed is tried again.
 */
export async function requestExport(
  work: Work,
  versionId: string,
  { format, reader, language, label, supplement }: ExportRequest,
): Promise<RequestedExport> {
  const { on, fresh } = work;
  const version = await requireVersion(on, versionId);
  const passport = await requirePassport(on, version.passportId);
  requireExportable(version, passport.item?.ceasedAt ?? null, format);
  requireOptions(format, 'pdf', label, 'label');
  requireOptions(format, 'catenax', supplement, 'supplement');
  const now = await asOfNow(on, passport, version);
  const input: ExportInput = {
    format,
    reader,
    // What makes no difference to the bytes makes no other export.
    language: format === 'html' || format === 'pdf' ? language : 'en',
    label: label ?? null,
    supplement: supplement === undefined ? null : JSON.stringify(supplement),
    asOf: { ...now, lastEvent: readerPoints[reader].includes(4) ? now.lastEvent : 0 },
  };
  const text = canonical(input as unknown as Json);
  const hash = sha256Hex(utf8(text));
  const { rows: added } = await on.query<{ id: string }>(
    `insert into passports.exports (id, tenant_id, version_id, format, reader, input, input_hash)
     values ($1, $2, $3, $4, $5, $6, $7) on conflict (tenant_id, version_id, input_hash) do nothing returning id`,
    [fresh.id(`export|${versionId}|${hash}`), on.tenantId, versionId, format, reader, text, hash],
  );
  const [row] = added;
  if (row) {
    await appendAudit(on, [
      {
        aggregate: ['export', row.id],
        type: 'export.requested',
        data: { format, input: hash, reader, version: versionId },
      },
    ]);
    await work.enqueue(exportPassport, { exportId: row.id });
    return { id: row.id, existing: false };
  }
  return { id: await knownExport(work, versionId, hash), existing: true };
}

/** Its id. If it has failed, its error is taken back and its job is enqueued again. */
async function knownExport(work: Work, versionId: string, inputHash: string): Promise<string> {
  const { on } = work;
  // Locked: of two requests at once one enqueues the job.
  const { rows } = await on.query<{ id: string; failed: boolean }>(
    `select e.id, e.error is not null as failed from passports.exports e
      where e.tenant_id = $1 and e.version_id = $2 and e.input_hash = $3 for no key update`,
    [on.tenantId, versionId, inputHash],
  );
  const { id, failed } = rows[0] as { id: string; failed: boolean };
  if (!failed) return id;
  await on.query('update passports.exports e set error = null where e.tenant_id = $1 and e.id = $2', [
    on.tenantId,
    id,
  ]);
  await appendAudit(on, [{ aggregate: ['export', id], type: 'export.retried', data: {} }]);
  await work.enqueue(exportPassport, { exportId: id });
  return id;
}

function requireOptions(format: ExportFormat, only: ExportFormat, value: unknown, name: string): void {
  if (value !== undefined && format !== only)
    throw passportError('VALIDATION_ERROR', `${name} is for the format ${only}, not for ${format}`);
}

/** Only what was published leaves the house, and credentials only of a version that counts. */
function requireExportable(
  { id, state, activeAt, receiptHash }: PassportVersion,
  ceasedAt: Date | null,
  format: ExportFormat,
): void {
  if (ceasedAt !== null)
    throw passportError('PASSPORT_NOT_ACTIVE', 'this passport has ceased: there is nothing to export', {
      state: 'CEASED',
    });
  if (activeAt === null || receiptHash === null)
    throw passportError(
      'CONFLICT',
      `version ${id} is ${state} and has never counted: only what was active once is exported`,
      { state },
    );
  if ((format === 'jsonld' || format === 'vc+jwt') && state !== 'ACTIVE')
    throw passportError(
      'PASSPORT_NOT_ACTIVE',
      `version ${id} is ${state}: there is no credential of it. Export it as a bundle or as JSON instead`,
      { state },
    );
}
