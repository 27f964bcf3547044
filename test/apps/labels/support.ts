import { randomBytes } from 'node:crypto';
import { assign } from '../../../src/apps/labels/assignments.ts';
import type { Change } from '../../../src/apps/labels/changes/change.ts';
import type { LabelTask } from '../../../src/apps/labels/changes/tasks.ts';
import { labelsComponent } from '../../../src/apps/labels/component.ts';
import { putLabelType } from '../../../src/apps/labels/label-types.ts';
import { putLabels } from '../../../src/apps/labels/labels.ts';
import { laneOf } from '../../../src/apps/labels/mac.ts';
import { putProducts } from '../../../src/apps/labels/products.ts';
import { putStore, type StoreSettings } from '../../../src/apps/labels/stores.ts';
import { putTemplate } from '../../../src/apps/labels/templates.ts';
import { eventsComponent } from '../../../src/events/component.ts';
import { SecretBox } from '../../../src/secrets/box.ts';
import { type Bundle, engine } from '../../support/engine.ts';

export const tenantId = 'default';

/** The MACs of labels 1, 2, 3, … */
export const mac = (number: number): string =>
  `00159DA0${number.toString(16).toUpperCase().padStart(4, '0')}`;

/** For a panel of 200 × 200: a bar and a line of text. */
export const template = (text = '{{price}}', size = 200): string =>
  `<svg xmlns="http://www.w3.org/2000/svg" width="${size}" height="${size}" viewBox="0 0 ${size} ${size}">
  <rect x="0" y="0" width="${size}" height="20" fill="#000"/>
  <tally-text x="4" y="80" width="${size - 8}" font-size="24">${text}</tally-text>
</svg>`;

export const nowhere = {
  kind: 'aims',
  url: 'http://127.0.0.1:9',
  company: 'C',
  store: 'S',
  username: 'u',
  password: 'opens the gateway',
} as const;

export interface Shop extends Bundle {
  /** The master secret, for a worker in another process. */
  readonly secret: string;
  readonly box: SecretBox;
  /** In one transaction. */
  change<T>(work: (change: Change) => Promise<T>, tenant?: string): Promise<T>;
  /** What waits in the lane of a label, in the order in which it is run. */
  tasks(number: number): Promise<(LabelTask & { readonly job: string })[]>;
  /** The same in short: the values of `key` on the first page of each task. */
  waiting(number: number, key?: string): Promise<(string | undefined)[]>;
}

export interface ShopOptions {
  readonly labels?: number;
  /** Label n shows product `P{n % products}`; 0 leaves labels unassigned. */
  readonly products?: number;
  readonly store?: Partial<StoreSettings>;
  readonly pages?: number;
  readonly engine?: Parameters<typeof engine>[0];
}

/** Store `s1`, type `small`, template `tag`, labels 1 … n and products P0 … */
export async function shop(options: ShopOptions = {}): Promise<Shop> {
  const bundle = await engine({
    components: [eventsComponent, labelsComponent],
    poolSize: 20,
    ...options.engine,
  });
  const secret = randomBytes(32);
  const box = new SecretBox(secret);
  const change: Shop['change'] = (work, tenant = tenantId) =>
    bundle.tallyman.database.transaction((tx) => work({ tx, tenantId: tenant }));
  const { labels = 1, products = 1, pages = 1 } = options;
  await change(async (within) => {
    await putStore(within, box, { code: 's1', gateway: nowhere, ...options.store });
    await putLabelType(within, { name: 'small', width: 200, height: 200, palette: 'bw', pages });
    await putTemplate(within, 'tag', template());
  });
  for (let first = 0; first < products; first += 1000)
    await change((within) =>
      putProducts(
        within,
        's1',
        Array.from({ length: Math.min(1000, products - first) }, (_, i) => ({
          sku: `P${first + i}`,
          name: `Product ${first + i}`,
          price: '1.00',
        })),
      ),
    );
  if (labels > 0)
    await change((within) =>
      putLabels(
        within,
        Array.from({ length: labels }, (_, i) => ({ mac: mac(i + 1), store: 's1', type: 'small' })),
      ),
    );
  if (labels > 0 && products > 0)
    await change((within) =>
      assign(
        within,
        Array.from({ length: labels }, (_, i) => ({
          mac: mac(i + 1),
          sku: `P${(i + 1) % products}`,
          template: 'tag',
        })),
      ),
    );
  const tasks: Shop['tasks'] = async (number) => {
    const rows = await bundle.rows<{ id: string; payload: LabelTask }>(
      `select j.id, j.payload from tallyman.jobs j join tallyman.lanes l on l.id = j.lane
        where l.tenant_id = $1 and l.queue = 'labels' and l.key = $2 order by j.pos`,
      [tenantId, laneOf(mac(number))],
    );
    return rows.map(({ id, payload }) => ({ ...payload, job: id }));
  };
  return {
    ...bundle,
    secret: secret.toString('hex'),
    box,
    change,
    tasks,
    waiting: async (number, key = 'price') =>
      (await tasks(number)).map(({ pages: [page] }) => page?.values[key]),
  };
}

export const setPrice = (shop: Shop, sku: string, price: string) =>
  shop.change((within) => putProducts(within, 's1', [{ sku, price }]));
