import { TallymanError } from '../../../engine/errors.ts';
import { OutsideTransaction } from '../../../engine/outside-transaction.ts';
import { images } from '../images.ts';
import { TemplateError, type TemplateFacts } from '../render/index.ts';
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
  const templates = new Map<string, TemplateFacts | undefined>();
  for (const { svg } of shown)
    if (svg !== null && !templates.has(svg)) templates.set(svg, images.knownTemplate(svg));
  const unread = [...templates].flatMap(([svg, known]) => (known ? [] : [svg]));
  if (unread.length > 0) {
    const read = () =>
      inTurns(unread, async (svg) => void templates.set(svg, await images.template(tenantId, svg)));
    if (drawsOutside) throw new OutsideTransaction(read);
    await read();
  }
  for (const page of shown) checkPlaceholders(page, templates.get(page.svg ?? ''));
  const unknown = shown
    .slice(0, mostFilled)
    .map((page, nth) => ({ page, isDrawn: nth < mostDrawn }))
    .filter(({ page }) => !images.isChecked(page));
  if (unknown.length === 0) return;
  const check = () =>
    inTurns(unknown, async ({ page, isDrawn }) => {
      try {
        if (isDrawn) await images.render(tenantId, page);
        else await images.check(tenantId, page);
      } catch (error) {
        throw nameLabel(error, page);
      }
    });
  if (drawsOutside) throw new OutsideTransaction(check);
  await check();
}

/** Some at once. Throws the first error in the order of the items, whichever failed first. */
async function inTurns<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  for (let first = 0; first < items.length; first += atOnce)
    for (const result of await Promise.allSettled(items.slice(first, first + atOnce).map(work)))
      if (result.status === 'rejected') throw result.reason;
}

function checkPlaceholders(page: PageRow, template: TemplateFacts | undefined): void {
  const missing = template?.placeholders.find((name) => !Object.hasOwn(page.values, name));
  if (missing !== undefined)
    throw nameLabel(
      new TemplateError(`There is no value for {{${missing}}}.`, { placeholder: missing }),
      page,
    );
}

function nameLabel(error: unknown, page: PageRow): unknown {
  if (!(error instanceof TallymanError)) return error;
  const product = page.values.sku === undefined ? '' : ` (product "${page.values.sku}")`;
  return new TallymanError(error.code, `label ${page.mac}, page ${page.page}${product}: ${error.message}`, {
    cause: error,
    details: { ...error.details, mac: page.mac, page: page.page },
  });
}
