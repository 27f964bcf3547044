import { TallymanError } from '../../../engine/errors.ts';
import { images } from '../images.ts';
import { TemplateError } from '../render/index.ts';
import type { PageRow } from './tasks.ts';

/**
 * The number of images that are drawn before a change is accepted; for the rest only the placeholders are checked. A change
 * holds locks meanwhile: one that touches thousands of labels must not hold them for a minute.
 */
const mostDrawn = 20;

/** Finds what cannot be drawn while the caller can still get the error (LBL-10). */
export async function checkImages(pages: readonly PageRow[]): Promise<void> {
  let drawn = 0;
  for (const page of pages) {
    if (page.svg === null || images.has(page)) continue;
    try {
      if (drawn < mostDrawn) {
        drawn += 1;
        await images.render(page);
      } else checkPlaceholders(page, page.svg);
    } catch (error) {
      throw nameLabel(error, page);
    }
  }
}

function checkPlaceholders({ values }: PageRow, svg: string): void {
  const missing = images.template(svg).placeholders.find((name) => !Object.hasOwn(values, name));
  if (missing !== undefined)
    throw new TemplateError(`there is no value for {{${missing}}}`, { placeholder: missing });
}

function nameLabel(error: unknown, { mac, page, values }: PageRow): unknown {
  if (!(error instanceof TallymanError)) return error;
  const product = values.sku === undefined ? '' : ` (product "${values.sku}")`;
  return new TallymanError(error.code, `label ${mac}, page ${page}${product}: ${error.message}`, {
    cause: error,
    details: { ...error.details, mac, page },
  });
}
