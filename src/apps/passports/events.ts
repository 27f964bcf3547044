import { z } from 'zod';
import { defineEventType } from '../../events/catalogue.ts';
import { emitMany } from '../../events/emit.ts';
import type { TenantQueries } from '../../host/timeline.ts';

const version = z.object({
  passport_id: z.string(),
  version_id: z.string(),
  number: z.int(),
  gtin: z.string(),
  serial: z.string().nullable().describe('Null for the passport of the model'),
  receipt_hash: z.string(),
});

const versionEvent = (step: string, summary: string) =>
  defineEventType({ type: `passport.version.${step}`, summary, aggregateType: 'passport', schema: version });

const documentSchema = z.object({
  document_id: z.string(),
  version_id: z.string(),
  product_id: z.string(),
  kind: z.string(),
  sha256: z.string(),
});

export const passportEventTypes = [
  versionEvent('signed', 'A version of a passport was compiled and signed'),
  versionEvent('active', 'A version of a passport counts from now on'),
  versionEvent('superseded', 'A newer version took the place of this one'),
  versionEvent('revoked', 'A version of a passport was revoked'),
  defineEventType({
    type: 'rules.version.published',
    summary: 'A rule package was published: all its test cases pass',
    aggregateType: 'rules',
    schema: z.object({ id: z.string(), name: z.string(), version: z.string(), hash: z.string() }),
  }),
  defineEventType({
    type: 'document.version.validated',
    summary: 'A document was read; its facts can be used',
    aggregateType: 'document',
    schema: documentSchema.extend({ facts: z.int() }),
  }),
  defineEventType({
    type: 'document.version.rejected',
    summary: 'A document has mistakes; none of its facts is used',
    aggregateType: 'document',
    schema: documentSchema.extend({ problems: z.int() }),
  }),
];

export type VersionStep = 'signed' | 'active' | 'superseded' | 'revoked';

/** What is told about a version. */
export interface ToldVersion {
  readonly id: string;
  readonly passportId: string;
  readonly number: number;
  readonly gtin: string;
  readonly serial: string | null;
  readonly receiptHash: string;
}

/** The id of each event names version and step, so that a version is told of each step once, whatever runs again. */
export async function tellVersions(
  on: TenantQueries,
  step: VersionStep,
  versions: readonly ToldVersion[],
): Promise<void> {
  await emitMany(
    on,
    versions.map(({ id, passportId, number, gtin, serial, receiptHash }) => ({
      type: `passport.version.${step}`,
      aggregateType: 'passport',
      aggregateId: passportId,
      id: `bpc:${step}:${id}`,
      tenantId: on.tenantId,
      payload: { passport_id: passportId, version_id: id, number, gtin, serial, receipt_hash: receiptHash },
    })),
  );
}
