import type { Queryable } from '../../engine/database/database.ts';
import { TenantScope } from '../../engine/database/tenant.ts';
import { TallymanError } from '../../engine/errors.ts';
import { OutsideTransaction } from '../../engine/outside-transaction.ts';
import { requireBuiltIn } from './built-ins.ts';
import { readPages, valuesOf } from './changes/tasks.ts';
import { type Design, images } from './images.ts';
import { requireLabel } from './labels.ts';
import { requireProduct } from './products.ts';
import {
  type LabelImage,
  type Palette,
  samplePromotion,
  sampleValues,
  type TemplateFacts,
} from './render/index.ts';
import { requireStore } from './stores.ts';
import { requireSvg } from './templates.ts';

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
  return drawn(on, tenantId, found);
}

/** A template filled with a product, in the template's own size. */
export async function previewTemplate(
  on: Queryable,
  tenantId: string,
  name: string,
  product: { readonly store: string; readonly sku: string; readonly palette?: Palette },
): Promise<LabelImage> {
  const svg = await requireSvg(on, tenantId, name);
  const store = await requireStore(on, tenantId, product.store);
  const found = await requireProduct(on, tenantId, product.store, product.sku);
  const { width, height } = await sizeOf(on, tenantId, svg);
  const panel = { width, height, palette: product.palette ?? 'bw' };
  return drawn(on, tenantId, { svg, values: valuesOf({ ...found, ...store, name: found.name }), panel });
}

async function sizeOf(on: Queryable, tenantId: string, svg: string): Promise<TemplateFacts> {
  const known = images.knownTemplate(svg);
  if (known) return known;
  const read = () => images.template(tenantId, svg);
  if (on instanceof TenantScope) throw new OutsideTransaction(read);
  return read();
}

/** A request has a transaction; a pool has none. */
async function drawn(on: Queryable, tenantId: string, design: Design): Promise<LabelImage> {
  if (on instanceof TenantScope && !images.has(design))
    throw new OutsideTransaction(() => images.render(tenantId, design));
  return images.render(tenantId, design);
}

/** A built-in template filled with a sample product. */
export async function previewBuiltIn(
  on: Queryable,
  tenantId: string,
  name: string,
  { palette, promotion }: { readonly palette: Palette; readonly promotion: boolean },
): Promise<LabelImage> {
  const { svg, width, height } = requireBuiltIn(name);
  return drawn(on, tenantId, {
    svg,
    values: promotion ? samplePromotion : sampleValues,
    panel: { width, height, palette },
  });
}
