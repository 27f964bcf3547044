import { TallymanError } from '../../../engine/errors.ts';
import { OutsideTransaction } from '../../../engine/outside-transaction.ts';
import { images } from '../images.ts';
import { TemplateError } from '../render/index.ts';
import type { Change } from './change.ts';
import type { PageRow } from './tasks.ts';

/**
 * The number of images that are drawn before a change is accepted, and of those whose templates are filled: that finds
 * everything but what the renderer itself refuses. For the rest only the placeholders are checked: a change that touches
 * thousands of labels must not wait for a minute.
 */
const mostDrawn = 20;
const mostFilled = 2000;
/** A failed one ends the change; those after it need not be made. */
const atOnce = 20;

/** Finds what cannot be drawn while the caller can still get the error (LBL-10). */
export async function checkImages(
  { tenantId, drawsOutside = false }: Pick<Change, 'tenantId' | 'drawsOutside'>,
  pages: readonly PageRow[],
): Promise<void> {
  const shown = pages.filter(({ svg }) => svg !== null);
  for (const page of shown) checkPlaceholders(page);
  const unknown = shown
    .slice(0, mostFilled)
    .map((page, nth) => ({ page, isDrawn: nth < mostDrawn }))
    .filter(({ page }) => !images.isChecked(page));
  if (unknown.length === 0) return;
  const check = async (): Promise<void> => {
    for (let first = 0; first < unknown.length; first += atOnce) {
      const some = unknown.slice(first, first + atOnce);
      const results = await Promise.allSettled(
        some.map(async ({ page, isDrawn }) => {
          if (isDrawn) await images.render(tenantId, page);
          else await images.check(tenantId, page);
        }),
      );
      // The first in the order of the pages, whichever failed first.
      for (const [nth, result] of results.entries())
        if (result.status === 'rejected') throw nameLabel(result.reason, some[nth]?.page);
    }
  };
  if (drawsOutside) throw new OutsideTransaction(check);
  await check();
}

function checkPlaceholders(page: PageRow): void {
  if (page.svg === null) return;
  const missing = images.template(page.svg).placeholders.find((name) => !Object.hasOwn(page.values, name));
  if (missing !== undefined)
    throw nameLabel(
      new TemplateError(`There is no value for {{${missing}}}.`, { placeholder: missing }),
      page,
    );
}

function nameLabel(error: unknown, page: PageRow | undefined): unknown {
  if (!(error instanceof TallymanError) || !page) return error;
  const product = page.values.sku === undefined ? '' : ` (product "${page.values.sku}")`;
  return new TallymanError(error.code, `label ${page.mac}, page ${page.page}${product}: ${error.message}`, {
    cause: error,
    details: { ...error.details, mac: page.mac, page: page.page },
  });
}
