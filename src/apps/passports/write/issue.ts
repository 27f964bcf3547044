import { TallymanError } from '../../../engine/errors.ts';
import { passportError } from '../errors.ts';
import { type Issue, issueItems } from '../jobs/kinds.ts';
import type { Means } from '../means.ts';
import { requireCurrentKey } from '../signing/keys.ts';
import { requireVersion } from '../store/versions.ts';
import type { Work } from '../work.ts';

/** What is fixed for a compile from now on. `issuedAt` is cut to seconds. */
export const newIssue = (
  { keys, build }: Pick<Means, 'keys' | 'build'>,
  { rulesId, issuedAt, withItems = false }: { rulesId: string; issuedAt: Date; withItems?: boolean },
): Issue => ({
  rulesId,
  issuedAt: `${issuedAt.toISOString().slice(0, 19)}Z`,
  signingKey: requireCurrentKey(keys),
  build,
  withItems,
});

/** Enqueues versions for all items of a model's version that have not ceased, some at a time. */
export async function requestItems(work: Work, modelVersionId: string, issue: Issue): Promise<void> {
  const model = await requireVersion(work.on, modelVersionId);
  if (model.item !== null)
    throw new TallymanError('BAD_OPTION', `version ${modelVersionId} is of an item, not of a model`);
  if (model.state !== 'ACTIVE')
    throw passportError(
      'VALIDATION_ERROR',
      `the model's version ${modelVersionId} is ${model.state}: items link to an active one`,
    );
  await work.enqueue(issueItems, { productId: model.product.id, modelVersionId, issue, after: null });
}
