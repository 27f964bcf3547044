import { TallymanError } from '../../../engine/errors.ts';
import { appendAudit } from '../audit/append.ts';
import { productProblems } from '../compile/compile-input.ts';
import type { JsonObject, Product } from '../compile/types.ts';
import { passportError } from '../errors.ts';
import { findProduct, productOf } from '../store/products.ts';
import type { Work } from '../work.ts';

/** Registers a model or changes its names. GTIN and category stay: passports carry them. The same again adds nothing. */
export async function putProduct({ on }: Work, product: Product): Promise<void> {
  const problems = productProblems(product);
  if (problems.length > 0)
    throw passportError('VALIDATION_ERROR', `product "${product.id}": ${problems.join('; ')}`, { problems });
  const { id, name, category, gtin, manufacturer, manufacturerId } = product;
  const known = await findProduct(on, id);
  if (known && JSON.stringify(productOf(known)) === JSON.stringify(productOf(product))) return;
  const { rowCount } = await on.query(
    `insert into passports.products as p (tenant_id, id, name, category, gtin, manufacturer, manufacturer_id)
     values ($1, $2, $3, $4, $5, $6, $7)
     on conflict (tenant_id, id) do update
        set name = excluded.name, manufacturer = excluded.manufacturer, manufacturer_id = excluded.manufacturer_id
      where p.gtin = excluded.gtin and p.category = excluded.category`,
    [on.tenantId, id, name, category, gtin, manufacturer, manufacturerId],
  );
  if (rowCount === 0)
    throw new TallymanError(
      'CONFLICT',
      `product "${id}" exists with another GTIN or category, which cannot change: register a new product`,
    );
  const data = { ...productOf(product) } as unknown as JsonObject;
  await appendAudit(on, [{ aggregate: ['product', id], type: 'product.put', data }]);
}
