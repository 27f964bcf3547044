import { appendAudit } from '../audit/append.ts';
import { canonical } from '../compile/canonical.ts';
import type { Item, Json, Product } from '../compile/types.ts';
import { passportError } from '../errors.ts';
import { batchSize, compilePassport, type Issue } from '../jobs/kinds.ts';
import { requirePassport } from '../store/passports.ts';
import { productOf, requireProduct } from '../store/products.ts';
import { latestSnapshot } from '../store/snapshots.ts';
import { requireVersion } from '../store/versions.ts';
import type { Work } from '../work.ts';
import { modelPassport } from './passports.ts';

export interface VersionRequest {
  readonly passportId: string;
  readonly item: Item | null;
}

export interface VersionInputs extends Omit<Issue, 'withItems'> {
  readonly product: Product;
  readonly snapshotId: string;
  readonly modelVersionId: string | null;
}

/**
 * Writes the rows of new versions with everything that is fixed for their compile, and enqueues COMPILE_PASSPORT in batches.
 * A version with the same inputs is not written again: the passport, snapshot, rules, build and time identify it.
 */
export async function requestVersions(
  work: Work,
  inputs: VersionInputs,
  requests: readonly VersionRequest[],
  next?: Issue,
): Promise<readonly string[]> {
  const { on, fresh } = work;
  const { issuedAt, build, signingKey, snapshotId, rulesId, modelVersionId } = inputs;
  const seeds = requests.map(
    ({ passportId }) => `version|${passportId}|${snapshotId}|${rulesId}|${issuedAt}`,
  );
  // Locked in the order of their ids: two requests for one passport give it two numbers.
  await on.query(
    `select 1 from passports.passports p where p.tenant_id = $1 and p.id = any ($2::uuid[]) order by p.id for no key update`,
    [on.tenantId, requests.map(({ passportId }) => passportId)],
  );
  const { rows } = await on.query<{ id: string; number: number; passportId: string }>(
    `insert into passports.versions (id, tenant_id, passport_id, number, snapshot_id, rules_id, model_version_id, product, item,
                                     issued_at, build, signing_key, salt)
     select u.id, $1, u.passport_id,
            coalesce((select max(v.number) from passports.versions v where v.passport_id = u.passport_id), 0) + 1,
            $2, $3, $4, $5, u.item, $6, $7, $8, u.salt
       from unnest($9::uuid[], $10::uuid[], $11::text[], $12::text[]) as u (id, passport_id, item, salt)
     on conflict (tenant_id, passport_id, snapshot_id, rules_id, build, issued_at) do nothing
     returning id, number, passport_id as "passportId"`,
    [
      on.tenantId,
      snapshotId,
      rulesId,
      modelVersionId,
      canonical(productOf(inputs.product) as unknown as Json),
      issuedAt,
      build,
      signingKey,
      seeds.map((seed) => fresh.id(seed)),
      requests.map(({ passportId }) => passportId),
      requests.map(({ item }) => (item === null ? null : canonical(item as unknown as Json))),
      seeds.map((seed) => fresh.salt(seed)),
    ],
  );
  await appendAudit(
    on,
    rows.map(({ id, number, passportId }) => ({
      aggregate: ['version', id],
      type: 'version.requested',
      data: {
        build,
        issued_at: issuedAt,
        model: modelVersionId,
        number,
        passport: passportId,
        rules: rulesId,
        signing_key: signingKey,
        snapshot: snapshotId,
      },
    })),
  );
  const ids = rows.map(({ id }) => id);
  for (let at = 0; at < ids.length; at += batchSize)
    await work.enqueue(compilePassport, { versions: ids.slice(at, at + batchSize), ...(next && { next }) });
  return ids;
}

/** Asks for a new version of a model's passport from its latest sealed snapshot, or from the one that is named. */
export async function requestModelVersion(
  work: Work,
  productId: string,
  issue: Issue,
  snapshotId?: string,
): Promise<string | undefined> {
  const product = await requireProduct(work.on, productId);
  const snapshot = snapshotId ?? (await latestSnapshot(work.on, productId))?.id;
  if (snapshot === undefined)
    throw passportError(
      'SNAPSHOT_NOT_READY',
      `product "${productId}" has no sealed snapshot: build one first`,
    );
  const passportId = await modelPassport(work, productId);
  const [id] = await requestVersions(
    work,
    { ...issue, product, snapshotId: snapshot, modelVersionId: null },
    [{ passportId, item: null }],
    issue.withItems ? issue : undefined,
  );
  return id;
}

/** Asks for a new version of one battery's passport, linked to the active version of its model. */
export async function requestItemVersion(
  work: Work,
  passportId: string,
  issue: Issue,
): Promise<string | undefined> {
  const { item, productId } = await requirePassport(work.on, passportId);
  if (item === null)
    throw passportError(
      'VALIDATION_ERROR',
      `passport ${passportId} is of a model: request a version of the model`,
    );
  if (item.ceasedAt !== null)
    throw passportError('PASSPORT_CEASED', `passport ${passportId} has ceased: it gets no new version`);
  const { rows } = await work.on.query<{ id: string | null }>(
    `select v.id from passports.passports p join passports.versions v on v.passport_id = p.id and v.state = 'ACTIVE'
      where p.tenant_id = $1 and p.product_id = $2 and p.serial is null`,
    [work.on.tenantId, productId],
  );
  const modelVersionId = rows[0]?.id;
  if (!modelVersionId)
    throw passportError(
      'VALIDATION_ERROR',
      `the passport of model "${productId}" has no active version: issue it first, then those of its batteries`,
    );
  const model = await requireVersion(work.on, modelVersionId);
  const { serial, manufacturedOn, manufacturedAt, status } = item;
  const [id] = await requestVersions(
    work,
    { ...issue, product: model.product, snapshotId: model.snapshotId, modelVersionId },
    [{ passportId, item: { serial, manufacturedOn, manufacturedAt, status } }],
  );
  return id;
}
