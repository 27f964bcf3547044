import { describe, expect, it } from 'vitest';
import { assign, unassign } from '../../../src/apps/labels/assignments.ts';
import { putLabelType, removeLabelType } from '../../../src/apps/labels/label-types.ts';
import {
  listLabels,
  putLabels,
  removeLabels,
  requireLabel,
  resync,
} from '../../../src/apps/labels/labels.ts';
import { normaliseMac } from '../../../src/apps/labels/mac.ts';
import { putProducts, removeProducts, requireProduct } from '../../../src/apps/labels/products.ts';
import { openGateway, putStore, removeStore, requireStore } from '../../../src/apps/labels/stores.ts';
import { putTemplate, removeTemplate, requireTemplate } from '../../../src/apps/labels/templates.ts';
import { mac, nowhere, setPrice, shop, template, tenantId } from './support.ts';

describe('LBL-1: labels by MAC', () => {
  it.each([
    ['00:15:9d:a0:10:2b', '00159DA0102B'],
    ['00-15-9D-A0-10-2B', '00159DA0102B'],
    ['0015.9da0.102b', '00159DA0102B'],
    [' 00159da0102b ', '00159DA0102B'],
  ])('%s is %s', (given, wanted) => expect(normaliseMac(given)).toBe(wanted));

  it.each(['', '00159DA0102', '00159DA0102B0', '00159DA0102G', '::::'])('"%s" is none', (given) =>
    expect(() => normaliseMac(given)).toThrow(/12 hexadecimal digits/),
  );

  it('LBL-1 however it is written, it is one label of one store and type, with products on its pages', async () => {
    const scene = await shop({ labels: 0, pages: 2 });
    await scene.change((c) => putLabels(c, [{ mac: '00:15:9d:a0:00:01', store: 's1', type: 'small' }]));
    const again = await scene.change((c) =>
      putLabels(c, [{ mac: '00-15-9D-A0-00-01', store: 's1', type: 'small' }]),
    );
    expect(again).toEqual({ added: 0, changed: 0 });
    await scene.change((c) => assign(c, [{ mac: '00159da00001', page: 2, sku: 'P0', template: 'tag' }]));
    const label = await requireLabel(scene.tallyman.database, tenantId, '00:15:9D:A0:00:01');
    expect(label).toMatchObject({
      mac: mac(1),
      store: 's1',
      type: 'small',
      state: 'waiting',
      pages: [{ page: 2, sku: 'P0', template: 'tag', state: 'waiting' }],
    });
  });
});

describe('LBL-2: a change is tasks, in its own transaction', () => {
  it('LBL-2 one for each label that shows the product, in its lane, with what is to be shown', async () => {
    const scene = await shop({ labels: 3, products: 2 });
    await setPrice(scene, 'P1', '2.50');
    expect(await scene.waiting(1)).toEqual(['1.00', '2.50']);
    expect(await scene.waiting(2)).toEqual(['1.00']);
    expect(await scene.waiting(3)).toEqual(['1.00', '2.50']);
    const [, task] = await scene.tasks(1);
    expect(task).toMatchObject({
      mac: mac(1),
      panel: { width: 200, height: 200, palette: 'bw' },
      pages: [{ page: 1, values: { sku: 'P1', name: 'Product 1', price: '2.50' } }],
    });
    const lanes = await scene.rows<{ key: string }>(
      `select key from tallyman.lanes where queue = 'labels' order by key`,
    );
    expect(lanes.map(({ key }) => key)).toEqual([1, 2, 3].map((n) => `label:${mac(n)}`));
    // Each page knows the task it waits for.
    const { pages } = await requireLabel(scene.tallyman.database, tenantId, mac(1));
    expect(pages[0]?.wantedJob).toBe(task?.job);
  });

  it('LBL-2 a template: its next version, named by the tasks; the old one stays with those made before', async () => {
    const scene = await shop({ labels: 2 });
    const [before] = await scene.tasks(1);
    const made = await scene.change((c) => putTemplate(c, 'tag', template('now {{price}}')));
    expect(made).toMatchObject({ name: 'tag', version: 2, pages: 2 });
    const [, after] = await scene.tasks(1);
    expect(after?.pages[0]?.template).not.toBe(before?.pages[0]?.template);
    const kept = await scene.rows('select version from labels.template_versions order by version');
    expect(kept).toEqual([{ version: 1 }, { version: 2 }]);
    expect(await scene.tasks(2)).toHaveLength(2);
  });

  it('LBL-2 an assignment, and its end, which is a blank page', async () => {
    const scene = await shop({ labels: 1, products: 2 });
    await scene.change((c) => assign(c, [{ mac: mac(1), sku: 'P0', template: 'tag' }]));
    expect(await scene.change((c) => unassign(c, [{ mac: mac(1) }]))).toBe(1);
    expect(await scene.change((c) => unassign(c, [{ mac: mac(1) }]))).toBe(0);
    expect(await scene.waiting(1, 'sku')).toEqual(['P1', 'P0', undefined]);
    expect((await scene.tasks(1)).at(-1)?.pages).toEqual([{ page: 1, template: null, values: {} }]);
  });

  it('LBL-2 a change of the panel, the currency or the type of a label', async () => {
    const scene = await shop({ labels: 1 });
    await scene.change((c) => putStore(c, scene.box, { code: 's1', currency: 'EUR', locale: 'de-DE' }));
    await scene.change((c) => putLabelType(c, { name: 'small', width: 200, height: 200, palette: 'bwr' }));
    await scene.change((c) => putLabelType(c, { name: 'other', width: 200, height: 200, palette: 'bwy' }));
    await scene.change((c) => putLabels(c, [{ mac: mac(1), store: 's1', type: 'other' }]));
    const tasks = await scene.tasks(1);
    expect(tasks.map(({ panel }) => panel.palette)).toEqual(['bw', 'bw', 'bwr', 'bwy']);
    expect(tasks.at(-1)?.pages[0]?.values).toMatchObject({ currency: 'EUR', locale: 'de-DE' });
  });

  it('LBL-2 what changes nothing makes nothing', async () => {
    const scene = await shop({ labels: 2 });
    const before = await scene.rows('select id from tallyman.jobs');
    await setPrice(scene, 'P0', '1.0');
    expect(
      await scene.change((c) =>
        putProducts(c, 's1', [{ sku: 'P0', name: 'Product 0', price: '1.00', attributes: { gone: null } }]),
      ),
    ).toEqual({ made: 0, changed: 0, unchanged: 1, labels: 0 });
    await scene.change((c) => putTemplate(c, 'tag', template()));
    await scene.change((c) => assign(c, [{ mac: mac(1), sku: 'P0', template: 'tag' }]));
    await scene.change((c) => putLabelType(c, { name: 'small', width: 200, height: 200, palette: 'bw' }));
    await scene.change((c) => putStore(c, scene.box, { code: 's1', name: 'Another name' }));
    expect(await scene.rows('select id from tallyman.jobs')).toEqual(before);
    expect(await scene.rows('select version from labels.template_versions')).toEqual([{ version: 1 }]);
  });

  it('LBL-2 a change that is rolled back leaves no task', async () => {
    const scene = await shop({ labels: 1 });
    const gone = scene.change(async (c) => {
      await putProducts(c, 's1', [{ sku: 'P0', price: '9.99' }]);
      throw new Error('changed my mind');
    });
    await expect(gone).rejects.toThrow('changed my mind');
    expect(await scene.waiting(1)).toEqual(['1.00']);
    expect((await requireProduct(scene.tallyman.database, tenantId, 's1', 'P0')).price).toBe('1.00');
  });

  it('LBL-2 what is not given stays; attributes are added, and go when given as null', async () => {
    const scene = await shop({ labels: 1 });
    await scene.change((c) =>
      putProducts(c, 's1', [{ sku: 'P0', attributes: { gtin: '4006381333931', unit: 'kg' } }]),
    );
    await scene.change((c) => putProducts(c, 's1', [{ sku: 'P0', attributes: { unit: null } }]));
    expect(await requireProduct(scene.tallyman.database, tenantId, 's1', 'P0')).toMatchObject({
      name: 'Product 0',
      price: '1.00',
      attributes: { gtin: '4006381333931' },
    });
  });

  it('LBL-2 tenants have their own labels and lanes, also for one MAC', async () => {
    const scene = await shop({ labels: 1 });
    await scene.change(async (c) => {
      await putStore(c, scene.box, { code: 's1', gateway: nowhere });
      await putLabelType(c, { name: 'small', width: 200, height: 200, palette: 'bw' });
      await putTemplate(c, 'tag', template());
      await putProducts(c, 's1', [{ sku: 'P0', name: 'theirs', price: '7.00' }]);
      await putLabels(c, [{ mac: mac(1), store: 's1', type: 'small' }]);
      await assign(c, [{ mac: mac(1), sku: 'P0', template: 'tag' }]);
    }, 'other');
    expect(await scene.waiting(1)).toEqual(['1.00']);
    const lanes = await scene.rows(
      `select tenant_id, key from tallyman.lanes where queue = 'labels' order by tenant_id`,
    );
    expect(lanes).toEqual([
      { tenant_id: 'default', key: `label:${mac(1)}` },
      { tenant_id: 'other', key: `label:${mac(1)}` },
    ]);
  });
});

describe('LBL-9: latestOnly', () => {
  it('LBL-9 tasks of such a store may be passed over, and so hold every page of their label', async () => {
    const scene = await shop({ labels: 1, products: 2, pages: 2, store: { latestOnly: true } });
    await scene.change((c) => assign(c, [{ mac: mac(1), page: 2, sku: 'P0', template: 'tag' }]));
    await setPrice(scene, 'P1', '3.00');
    const task = (await scene.tasks(1)).at(-1);
    expect(task?.pages.map(({ page, values }) => [page, values.price])).toEqual([
      [1, '3.00'],
      [2, '1.00'],
    ]);
    expect(await scene.rows('select distinct latest_only from tallyman.jobs')).toEqual([
      { latest_only: true },
    ]);
    // Without it a task holds what was changed.
    await scene.change((c) => putStore(c, scene.box, { code: 's1', latestOnly: false }));
    await setPrice(scene, 'P1', '4.00');
    expect((await scene.tasks(1)).at(-1)?.pages).toHaveLength(1);
  });
});

describe('LBL-10: bad input', () => {
  const refusals: [string, RegExp, string, (s: Awaited<ReturnType<typeof shop>>) => Promise<unknown>][] = [
    [
      'an unknown product',
      /no product "nope" in store "s1"/,
      'NOT_FOUND',
      (s) => s.change((c) => assign(c, [{ mac: mac(1), sku: 'nope', template: 'tag' }])),
    ],
    [
      'an unknown template',
      /no label template "nope"/,
      'NOT_FOUND',
      (s) => s.change((c) => assign(c, [{ mac: mac(1), sku: 'P0', template: 'nope' }])),
    ],
    [
      'an unknown label',
      /no label 00159DA0FFFF/,
      'NOT_FOUND',
      (s) => s.change((c) => assign(c, [{ mac: mac(0xffff), sku: 'P0', template: 'tag' }])),
    ],
    [
      'an unknown store',
      /no store "nope"/,
      'NOT_FOUND',
      (s) => s.change((c) => putProducts(c, 'nope', [{ sku: 'P0' }])),
    ],
    [
      'an unknown type',
      /no label type "nope"/,
      'NOT_FOUND',
      (s) => s.change((c) => putLabels(c, [{ mac: mac(9), store: 's1', type: 'nope' }])),
    ],
    [
      'a bad MAC',
      /"12:34" is not the MAC of a label/,
      'BAD_OPTION',
      (s) => s.change((c) => putLabels(c, [{ mac: '12:34', store: 's1', type: 'small' }])),
    ],
    [
      'a page that is not there',
      /has 1 pages; there is no page 2/,
      'BAD_OPTION',
      (s) => s.change((c) => assign(c, [{ mac: mac(1), page: 2, sku: 'P0', template: 'tag' }])),
    ],
    [
      'a bad price',
      /must be a number such as 1.99, got "1,99"/,
      'BAD_OPTION',
      (s) => s.change((c) => putProducts(c, 's1', [{ sku: 'P0', price: '1,99' }])),
    ],
    [
      'a new product without a name',
      /"new" is new and needs a name/,
      'BAD_OPTION',
      (s) =>
        s.change((c) =>
          putProducts(c, 's1', [
            { sku: 'P0', price: '5.00' },
            { sku: 'new', price: '1' },
          ]),
        ),
    ],
    [
      'a product twice',
      /"P0" is given twice/,
      'BAD_OPTION',
      (s) => s.change((c) => putProducts(c, 's1', [{ sku: 'P0' }, { sku: 'P0' }])),
    ],
    [
      'a template that is not SVG',
      /./,
      'LABEL_TEMPLATE',
      (s) => s.change((c) => putTemplate(c, 'tag', '<svg')),
    ],
    [
      'a template with a placeholder that a product has no value for',
      /label 00159DA00001, page 1 \(product "P1"\): .*\{\{weight\}\}/,
      'LABEL_TEMPLATE',
      (s) => s.change((c) => putTemplate(c, 'tag', template('{{weight}}'))),
    ],
    [
      'a template too large for the label',
      /label 00159DA00001, page 1.*400.*200/,
      'LABEL_TEMPLATE',
      (s) => s.change((c) => putTemplate(c, 'tag', template('{{price}}', 400))),
    ],
    [
      'a panel that the templates do not fit',
      /label 00159DA00001/,
      'LABEL_TEMPLATE',
      (s) => s.change((c) => putLabelType(c, { name: 'small', width: 100, height: 100, palette: 'bw' })),
    ],
    [
      'a price taken away that a template shows',
      /\{\{price\}\}/,
      'LABEL_TEMPLATE',
      (s) => s.change((c) => putProducts(c, 's1', [{ sku: 'P1', price: null }])),
    ],
    [
      'a store without a gateway',
      /say how its gateway is reached/,
      'BAD_OPTION',
      (s) => s.change((c) => putStore(c, s.box, { code: 'new' })),
    ],
    [
      'a gateway that makes no sense',
      /gateway/,
      'BAD_OPTION',
      (s) => s.change((c) => putStore(c, s.box, { code: 'new', gateway: { kind: 'aims' } })),
    ],
    [
      'a product that is shown, removed',
      /"P1" is shown by label/,
      'BAD_STATE',
      (s) => s.change((c) => removeProducts(c, 's1', ['P1'])),
    ],
    [
      'a template that is shown, removed',
      /labels that show the template/,
      'BAD_STATE',
      (s) => s.change((c) => removeTemplate(c, 'tag')),
    ],
    [
      'a type that is used, removed',
      /labels of the type "small"/,
      'BAD_STATE',
      (s) => s.change((c) => removeLabelType(c, 'small')),
    ],
    [
      'a store with labels, removed',
      /store "s1" has 2 labels/,
      'BAD_STATE',
      (s) => s.change((c) => removeStore(c, 's1')),
    ],
  ];
  it('LBL-10 each is refused with a clear error that names what is wrong, and nothing is half-written', async () => {
    const scene = await shop({ labels: 2, products: 2 });
    const everything = async () => ({
      products: await scene.rows('select * from labels.products order by id'),
      versions: await scene.rows('select template_id, version from labels.template_versions'),
      types: await scene.rows('select * from labels.label_types order by id'),
      stores: await scene.rows('select * from labels.stores order by id'),
      labels: await scene.rows('select * from labels.labels order by id'),
      pages: await scene.rows('select * from labels.pages order by label_id, page'),
      jobs: await scene.rows('select id from tallyman.jobs order by id'),
    });
    const before = await everything();
    for (const [what, message, code, act] of refusals) {
      const error = await act(scene).then(
        () => undefined,
        (thrown: Error & { code?: string }) => thrown,
      );
      expect({ what, code: error?.code, message: error?.message }).toEqual({
        what,
        code,
        message: expect.stringMatching(message),
      });
      expect({ what, now: await everything() }).toEqual({ what, now: before });
    }
  });

  it('LBL-10 one bad product of many: none of them', async () => {
    const scene = await shop({ labels: 1 });
    const many = Array.from({ length: 50 }, (_, i) => ({
      sku: `N${i}`,
      name: `New ${i}`,
      price: i === 49 ? 'x' : '1',
    }));
    await expect(scene.change((c) => putProducts(c, 's1', many))).rejects.toThrow(/"N49"/);
    expect(await scene.rows(`select 1 from labels.products where sku like 'N%'`)).toEqual([]);
  });
});

it('a store keeps its password sealed, for itself alone', async () => {
  const scene = await shop();
  const [row] = await scene.rows<{ tenant_id: string; code: string; sealed: string }>(
    'select tenant_id, code, gateway_sealed as sealed from labels.stores',
  );
  expect(row?.sealed).not.toContain(nowhere.password);
  const sealed = row?.sealed ?? '';
  expect(openGateway(scene.box, { tenantId, code: 's1', sealed })).toMatchObject(nowhere);
  expect(() => openGateway(scene.box, { tenantId, code: 's2', sealed })).toThrow(/cannot be opened/);
  const store = await requireStore(scene.tallyman.database, tenantId, 's1');
  expect(JSON.stringify(store)).not.toContain(nowhere.password);
  expect(store).toMatchObject({ gatewayKind: 'aims', gatewayUrl: nowhere.url, labels: 1, products: 1 });
});

it('labels are listed by store, state and product; removed ones are gone, their history not', async () => {
  const scene = await shop({ labels: 3, products: 2 });
  const { database } = scene.tallyman;
  const macs = async (filter: Parameters<typeof listLabels>[2]) =>
    (await listLabels(database, tenantId, filter)).items.map((label) => label.mac);
  expect(await macs({})).toEqual([mac(3), mac(2), mac(1)]);
  expect(await macs({ sku: 'P1' })).toEqual([mac(3), mac(1)]);
  expect(await macs({ state: 'shown' })).toEqual([]);
  expect(await macs({ store: 's1', state: 'waiting' })).toHaveLength(3);
  const page = await listLabels(database, tenantId, {}, { limit: 2 });
  expect(page.items).toHaveLength(2);
  expect(
    (await listLabels(database, tenantId, {}, { limit: 2, cursor: page.nextCursor ?? '' })).items,
  ).toHaveLength(1);
  await scene.change((c) => removeLabels(c, [mac(2)]));
  await expect(requireLabel(database, tenantId, mac(2))).rejects.toThrow(`there is no label ${mac(2)}`);
  expect(await scene.tasks(2)).toHaveLength(1);
  expect(await scene.change((c) => resync(c, { store: 's1' }))).toBe(2);
  expect((await requireTemplate(database, tenantId, 'tag')).svg).toBe(template());
});
