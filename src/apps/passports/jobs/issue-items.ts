import type { JobContext } from '../../../engine/jobs/context.ts';
import type { Item } from '../compile/types.ts';
import type { Means } from '../means.ts';
import { requireVersion } from '../store/versions.ts';
import { commitWork } from '../work.ts';
import { requestVersions } from '../write/versions.ts';
import { type ItemsJob, issueItems } from './kinds.ts';
import { withCodes } from './run.ts';

/** Items that one job requests versions for. */
const pageSize = 500;

/** Requests a version for each item of a model, page by page: each job enqueues the next one in its own commit. */
export const issueItemsHandler = (means: Means) => (job: ItemsJob, context: JobContext) =>
  withCodes(() =>
    commitWork(context, means.fresh, async (work) => {
      const { on } = work;
      const { productId, modelVersionId, issue, after } = job;
      const model = await requireVersion(on, modelVersionId);
      const { rows } = await on.query<Item & { readonly passportId: string }>(
        `select p.id as "passportId", i.serial, i.manufactured_on as "manufacturedOn", i.manufactured_at as "manufacturedAt",
                i.status
           from passports.passports p join passports.items i on i.passport_id = p.id
          where p.tenant_id = $1 and p.product_id = $2 and i.ceased_at is null and ($3::uuid is null or p.id > $3)
          order by p.id limit $4`,
        [on.tenantId, productId, after, pageSize],
      );
      await requestVersions(
        work,
        { ...issue, product: model.product, snapshotId: model.snapshotId, modelVersionId },
        rows.map(({ passportId, ...item }) => ({ passportId, item })),
      );
      if (rows.length === pageSize)
        await work.enqueue(issueItems, { ...job, after: rows.at(-1)?.passportId ?? null });
    }),
  );
