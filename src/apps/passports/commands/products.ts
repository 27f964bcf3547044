import type { Command } from 'commander';
import {
  collect,
  examples,
  group,
  more,
  oneOf,
  type PageOptions,
  withPage,
} from '../../../host/cli/options.ts';
import { show } from '../../../host/cli/output/print.ts';
import { table } from '../../../host/cli/output/table.ts';
import { terminalWidth } from '../../../host/cli/output/terminal.ts';
import type { CommandFrame } from '../../../host/cli/session.ts';
import { type Category, categories } from '../compile/types.ts';
import { listProducts, requireProduct, type StoredProduct } from '../store/products.ts';
import { putProduct } from '../write/products.ts';
import { type TenantOption, withPassports, withTenant } from './tools.ts';

interface PutOptions extends TenantOption {
  readonly name: string;
  readonly category: Category;
  readonly gtin: string;
  readonly manufacturer: string;
  readonly manufacturerId: string;
}

/** `tallyman passports products …` */
export function addProducts(passports: Command, frame: CommandFrame): void {
  const products = group(passports, 'products', 'models of batteries');

  withTenant(products.command('put'))
    .description('register a model, or change its names')
    .argument('<id>', 'your own id of it')
    .requiredOption('--name <name>', 'as readers see it')
    .requiredOption('--category <category>', categories.join(', '), oneOf(categories))
    .requiredOption('--gtin <digits>', 'GTIN-14, on every label of the model')
    .requiredOption('--manufacturer <name>', 'who made it')
    .requiredOption('--manufacturer-id <id>', 'a URL or number that identifies the manufacturer')
    .addHelpText(
      'after',
      examples([
        'passports products put pack-100 --name "Pack 100" --category ev --gtin 09506000134352 --manufacturer Sample --manufacturer-id https://sample.example',
      ]),
    )
    .action((id: string, options: PutOptions) =>
      withPassports(frame, options, async ({ change, on }) => {
        const { name, category, gtin, manufacturer, manufacturerId } = options;
        await change((work) => putProduct(work, { id, name, category, gtin, manufacturer, manufacturerId }));
        const { productJson } = await import('../routes/products.ts');
        show(options.json, productJson(await requireProduct(on, id)), () => `model ${id} is registered`);
      }),
    );

  withPage(products.command('list').option('-t, --tenant <id>', 'of this tenant', 'default'))
    .description('models, by id')
    .addHelpText('after', examples(['passports products list']))
    .action((options: PageOptions & TenantOption) =>
      withPassports(frame, options, async ({ on }) => {
        const found = await collect(options, (at) => listProducts(on, at));
        const { productJson } = await import('../routes/products.ts');
        const shown = { items: found.items.map(productJson), next_cursor: found.nextCursor };
        show(options.json, shown, () =>
          found.items.length === 0
            ? 'No models.'
            : table<StoredProduct>(
                [
                  { title: 'PRODUCT', value: ({ id }) => id },
                  { title: 'NAME', value: ({ name }) => name, shrinkTo: 8 },
                  { title: 'CATEGORY', value: ({ category }) => category },
                  { title: 'GTIN', value: ({ gtin }) => gtin },
                ],
                found.items,
                terminalWidth(),
              ) + more(found.nextCursor),
        );
      }),
    );
}
