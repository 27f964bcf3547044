import type { TenantQueries } from '../../../host/timeline.ts';
import { type AccessPoint, type Reader, readerPoints } from '../compile/types.ts';
import { mostExportedEvents } from '../export/events.ts';
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

/** A passport with everything that it was made from; `source` still has to be disclosed to the reader that it was loaded for. */
export interface LoadedPassport {
  readonly source: PassportSource;
  readonly documents: readonly DocumentVersion[];
  readonly rules: readonly FullRulePackage[];
}

/** What changes about a version after it was signed, at one time. The passport had not ceased then. */
export interface AsOf extends Pick<PassportSource, 'state' | 'endedAt' | 'supersededBy' | 'predecessors'> {
  /** The number of the last event of the battery; 0 without one. */
  readonly lastEvent: number;
}

export async function asOfNow(
  on: TenantQueries,
  passport: StoredPassport,
  version: PassportVersion,
): Promise<AsOf> {
  const [last] = passport.serial === null ? [] : await itemEventsOf(on, passport.id, { limit: 1 });
  return { ...(await changing(on, passport, version)), lastEvent: last?.seq ?? 0 };
}

const changing = async (
  on: TenantQueries,
  passport: StoredPassport,
  version: PassportVersion,
): Promise<Omit<AsOf, 'lastEvent'>> => ({
  state: version.state as PassportSource['state'],
  endedAt: version.endedAt === null ? null : rfc3339(version.endedAt),
  supersededBy: await successorOf(on, version),
  predecessors: passport.serial === null ? [] : await predecessorsOf(on, passport.id),
});

/**
 * As it is now, or as it was. Undefined if the version has no artefacts: it was never compiled. Individual data is read only
 * for readers that may see it.
 */
export async function loadPassport(
  on: TenantQueries,
  { passport, version }: { readonly passport: StoredPassport; readonly version: PassportVersion },
  reader: Reader,
  { publicKeys, origin }: PublicMeans,
  asOf?: AsOf,
): Promise<LoadedPassport | undefined> {
  const hasEvents = passport.serial !== null && readerPoints[reader].includes(4);
  const [model] = version.modelVersionId === null ? [] : await findVersions(on, [version.modelVersionId]);
  const [own, models] = [await signed(on, version), model ? await signed(on, model) : null];
  if (!own || models === undefined) return undefined;
  const rules = [...(model ? [model] : []), version].map(({ rulesId }) => rulesId);
  const packages: FullRulePackage[] = [];
  for (const id of new Set(rules)) packages.push(await requireRulePackage(on, id));
  const documents: DocumentVersion[] = [];
  for (const id of new Set([version, ...(model ? [model] : [])].map(({ snapshotId }) => snapshotId)))
    documents.push(...(await documentsOfSnapshot(on, id)));
  const { state, endedAt, supersededBy, predecessors } = asOf ?? (await changing(on, passport, version));
  return {
    source: {
      product: version.product,
      version: own,
      model: models,
      state,
      versionNumber: version.number,
      endedAt,
      supersededBy,
      ceasedAt: passport.item?.ceasedAt && !asOf ? rfc3339(passport.item.ceasedAt) : null,
      predecessors,
      individual: hasEvents ? await records(on, passport.id, asOf?.lastEvent) : [],
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

async function records(
  on: TenantQueries,
  passportId: string,
  last?: number,
): Promise<readonly IndividualRecord[]> {
  const before = last === undefined ? {} : { before: last + 1 };
  const events = await itemEventsOf(on, passportId, { limit: mostExportedEvents, ...before });
  return events.map(({ seq, type, occurredAt, data, content, signingKey, signature }) => ({
    seq,
    type,
    at: rfc3339(occurredAt),
    data,
    content,
    signingKey,
    signature,
  }));
}

const rfc3339 = (date: Date): string => date.toISOString().replace('.000Z', 'Z');
