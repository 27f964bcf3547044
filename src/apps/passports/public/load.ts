import type { TenantQueries } from '../../../host/timeline.ts';
import type { AccessPoint } from '../compile/types.ts';
import type { IndividualRecord, PassportSource, SignedVersion } from '../page/disclosure.ts';
import { type DocumentVersion, documentsOfSnapshot } from '../store/documents.ts';
import { itemEventsOf } from '../store/item-events.ts';
import { predecessorsOf, type StoredPassport } from '../store/passports.ts';
import { type FullRulePackage, requireRulePackage } from '../store/rules.ts';
import { artefactsOf, findVersions, type PassportVersion } from '../store/versions.ts';
import { publishedVersion } from './find.ts';

/** What a passport is shown with, besides what is in the database. */
export interface PublicMeans {
  readonly publicKeys: PassportSource['publicKeys'];
  readonly origin: string;
}

/** A passport with everything that it was made from; `source` still has to be disclosed to a reader. */
export interface LoadedPassport {
  readonly source: PassportSource;
  readonly documents: readonly DocumentVersion[];
  readonly rules: readonly FullRulePackage[];
}

/** Newest records that are shown and exported; older ones are read through the API of individual data. */
const mostRecords = 200;

/** Undefined if the version has no artefacts: it was never compiled. */
export async function loadPassport(
  on: TenantQueries,
  passport: StoredPassport,
  version: PassportVersion,
  { publicKeys, origin }: PublicMeans,
): Promise<LoadedPassport | undefined> {
  const [model] = version.modelVersionId === null ? [] : await findVersions(on, [version.modelVersionId]);
  const [own, models] = [await signed(on, version), model ? await signed(on, model) : null];
  if (!own || models === undefined) return undefined;
  const rules = [...(model ? [model] : []), version].map(({ rulesId }) => rulesId);
  const packages: FullRulePackage[] = [];
  for (const id of new Set(rules)) packages.push(await requireRulePackage(on, id));
  const documents: DocumentVersion[] = [];
  for (const id of new Set([version, ...(model ? [model] : [])].map(({ snapshotId }) => snapshotId)))
    documents.push(...(await documentsOfSnapshot(on, id)));
  return {
    source: {
      product: version.product,
      version: own,
      model: models,
      state: version.state as PassportSource['state'],
      versionNumber: version.number,
      endedAt: version.endedAt === null ? null : rfc3339(version.endedAt),
      supersededBy: await successorOf(on, version),
      ceasedAt: passport.item?.ceasedAt ? rfc3339(passport.item.ceasedAt) : null,
      predecessors: passport.serial === null ? [] : await predecessorsOf(on, passport.id),
      individual: passport.serial === null ? [] : await records(on, passport.id),
      fieldPoints: new Map<string, AccessPoint>(
        packages.flatMap((each) => each.package.rules.map(({ field, point }) => [field, point] as const)),
      ),
      documentNames: new Map(documents.map(({ sha256, name }) => [sha256, name])),
      publicKeys,
      origin,
    },
    documents,
    rules: packages,
  };
}

async function signed(
  on: TenantQueries,
  { id, signature }: PassportVersion,
): Promise<SignedVersion | undefined> {
  const artefacts = await artefactsOf(on, id);
  if (!artefacts || signature === null) return undefined;
  const { payload, proof, receipt } = artefacts;
  return { payload, proof, receipt, signature };
}

async function successorOf(
  on: TenantQueries,
  { state, passportId }: PassportVersion,
): Promise<PassportSource['supersededBy']> {
  if (state !== 'SUPERSEDED') return null;
  const current = await publishedVersion(on, passportId, { current: true });
  return current?.state === 'ACTIVE' ? { version: current.id, issuedAt: current.issuedAt } : null;
}

const records = async (on: TenantQueries, passportId: string): Promise<readonly IndividualRecord[]> =>
  (await itemEventsOf(on, passportId, { limit: mostRecords })).map(
    ({ seq, type, occurredAt, data, content, signingKey, signature }) => ({
      seq,
      type,
      at: rfc3339(occurredAt),
      data,
      content,
      signingKey,
      signature,
    }),
  );

const rfc3339 = (date: Date): string => date.toISOString().replace('.000Z', 'Z');
