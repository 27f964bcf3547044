import type { Queryable } from '../../engine/database/database.ts';
import { TallymanError } from '../../engine/errors.ts';
import { readPages, valuesOf } from './changes/tasks.ts';
import { images } from './images.ts';
import { requireLabel } from './labels.ts';
import { requireProduct } from './products.ts';
import type { LabelImage, Palette } from './render/index.ts';
import { requireStore } from './stores.ts';
import { requireTemplate } from './templates.ts';

/** What a page of a label should show now, as an image. */
export async function previewLabel(
  on: Queryable,
  tenantId: string,
  mac: string,
  page = 1,
): Promise<LabelImage> {
  const label = await requireLabel(on, tenantId, mac);
  const found = (await readPages({ tx: on }, [label.id])).find((row) => row.page === page);
  if (!found)
    throw new TallymanError('NOT_FOUND', `nothing was ever assigned to page ${page} of label ${label.mac}`);
  return images.render(found);
}

/** A template filled with a product, in the template's own size. */
export async function previewTemplate(
  on: Queryable,
  tenantId: string,
  name: string,
  product: { readonly store: string; readonly sku: string; readonly palette?: Palette },
): Promise<LabelImage> {
  const { svg } = await requireTemplate(on, tenantId, name);
  const store = await requireStore(on, tenantId, product.store);
  const found = await requireProduct(on, tenantId, product.store, product.sku);
  const { width, height } = images.template(svg);
  const panel = { width, height, palette: product.palette ?? 'bw' };
  return images.render({ svg, values: valuesOf({ ...found, ...store, name: found.name }), panel });
}
