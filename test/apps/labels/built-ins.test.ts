import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { assign } from '../../../src/apps/labels/assignments.ts';
import { listBuiltIns, storeBuiltIns } from '../../../src/apps/labels/built-ins.ts';
import { putLabelType } from '../../../src/apps/labels/label-types.ts';
import { putLabels, requireLabel } from '../../../src/apps/labels/labels.ts';
import { previewLabel } from '../../../src/apps/labels/preview.ts';
import { putProducts } from '../../../src/apps/labels/products.ts';
import { builtInTemplate, readTemplate, renderLabel } from '../../../src/apps/labels/render/index.ts';
import { putStore } from '../../../src/apps/labels/stores.ts';
import { listTemplates, putTemplate, removeTemplate } from '../../../src/apps/labels/templates.ts';
import { scratch, start } from '../../cli/support.ts';
import { labelMac, server } from '../../server/support.ts';
import { emptyDatabase } from '../../support/postgres.ts';
import { shelf } from './shelf.ts';
import { mac, nowhere, setPrice, shop, template, tenantId } from './support.ts';

const inEuro = { currency: 'EUR', locale: 'de-DE' } as const;
const valuesOf = (price: string) => ({ name: 'Product 0', sku: 'P0', price, ...inEuro });
const imageOf = (price: string, size = 200) => {
  const panel = { width: size, height: size, palette: 'bw' } as const;
  return renderLabel(readTemplate(builtInTemplate(panel)), valuesOf(price), panel);
};

describe('the built-in template as the default', () => {
  test('LBL-11: a label without a template shows the built-in one of its size, down to the gateway', async () => {
    const scene = await shelf({ labels: 1, products: 0, store: inEuro });
    await scene.change((within) =>
      putProducts(within, 's1', [{ sku: 'P0', name: 'Product 0', price: '1.00' }]),
    );
    expect(await scene.change((within) => assign(within, [{ mac: mac(1), sku: 'P0' }]))).toBe(1);
    await scene.start();
    await scene.done();
    await setPrice(scene, 'P0', '2.00');
    await scene.done();
    expect(scene.simulator.simulation.labels.get(mac(1))?.images.map(({ hash }) => hash)).toEqual([
      (await imageOf('1.00')).hash,
      (await imageOf('2.00')).hash,
    ]);
    const { database } = scene.tallyman;
    const label = await requireLabel(database, tenantId, mac(1));
    expect(label.pages).toMatchObject([{ template: 'built-in-200x200' }]);
    expect((await previewLabel(database, tenantId, mac(1))).hash).toBe((await imageOf('2.00')).hash);
    // It is not one of the tenant's own.
    expect((await listTemplates(database, tenantId)).items.map(({ name }) => name)).toEqual(['tag']);
  });

  test('LBL-11: it follows the size, if the label or its type gets another; own templates do not', async () => {
    const scene = await shop({ labels: 2, products: 1, store: inEuro });
    await scene.change((within) => assign(within, [{ mac: mac(1), sku: 'P0' }]));
    await scene.change((within) =>
      putLabelType(within, { name: 'large', width: 296, height: 160, palette: 'bwr' }),
    );
    await scene.change((within) => putLabels(within, [{ mac: mac(1), store: 's1', type: 'large' }]));
    const shows = async () =>
      (await requireLabel(scene.tallyman.database, tenantId, mac(1))).pages[0]?.template;
    expect(await shows()).toBe('built-in-296x160');
    await scene.change((within) =>
      putLabelType(within, { name: 'large', width: 400, height: 300, palette: 'bwr' }),
    );
    expect(await shows()).toBe('built-in-400x300');
    expect((await scene.tasks(1)).at(-1)?.panel).toMatchObject({ width: 400 });
    await expect(
      scene.change((within) => putLabels(within, [{ mac: mac(2), store: 's1', type: 'large' }])),
    ).rejects.toThrow('The template is made for 200 × 200');
  });

  test('LBL-11: many at once store it once; its name is taken', async () => {
    const scene = await shop({ labels: 8, products: 1, store: inEuro });
    await Promise.all(
      Array.from({ length: 8 }, (_, at) =>
        scene.change((within) => assign(within, [{ mac: mac(at + 1), sku: 'P0' }])),
      ),
    );
    expect(
      await scene.rows(
        `select t.version, count(v.id)::int as versions from labels.templates t
           join labels.template_versions v on v.template_id = t.id where t.built_in group by t.id`,
      ),
    ).toEqual([{ version: 1, versions: 1 }]);
    await expect(
      scene.change((within) => putTemplate(within, 'built-in-200x200', template())),
    ).rejects.toMatchObject({ code: 'BAD_OPTION' });
    await expect(scene.change((within) => removeTemplate(within, 'built-in-200x200'))).rejects.toMatchObject({
      code: 'NOT_FOUND',
    });
  });

  test('LBL-11: after an update a label takes the new design with its next image; nothing is redrawn at once', async () => {
    const scene = await shop({ labels: 2, products: 2, store: inEuro });
    await scene.change((within) => assign(within, [{ mac: mac(1), sku: 'P1' }]));
    const before = (await scene.tasks(1)).length;
    await scene.rows(`update labels.template_versions v set svg = '<svg xmlns="http://www.w3.org/2000/svg" width="200" height="200"/>'
                        from labels.templates t where t.id = v.template_id and t.built_in`);
    await scene.change(({ tx }) => storeBuiltIns(tx, tenantId, ['built-in-200x200']));
    expect(await scene.tasks(1)).toHaveLength(before);
    await setPrice(scene, 'P1', '3.00');
    const [old, next] = (await scene.tasks(1)).slice(-2).map(({ pages: [page] }) => page?.template);
    expect(next).not.toBe(old);
  });

  test('LBL-10, LBL-11: a bad assignment stores no template', async () => {
    const scene = await shop({ labels: 1, products: 1, store: inEuro });
    await expect(
      scene.change((within) => assign(within, [{ mac: mac(1), sku: 'nothing' }])),
    ).rejects.toMatchObject({ code: 'NOT_FOUND' });
    // No currency: the built-in template needs one.
    await scene.change((within) => putStore(within, scene.box, { code: 's2', gateway: nowhere }));
    await scene.change((within) => putProducts(within, 's2', [{ sku: 'P0', name: 'X', price: '1' }]));
    await scene.change((within) => putLabels(within, [{ mac: mac(9), store: 's2', type: 'small' }]));
    await expect(
      scene.change((within) => assign(within, [{ mac: mac(9), sku: 'P0' }])),
    ).rejects.toMatchObject({ code: 'LABEL_TEMPLATE', message: expect.stringContaining('{{currency}}') });
    expect(await scene.rows('select 1 from labels.templates where built_in')).toEqual([]);
  });
});

describe('amounts', () => {
  test('LBL-11: a price with more places than its currency has is refused, and nothing is written', async () => {
    const scene = await shop({ labels: 0, products: 0, store: { ...inEuro, currency: 'JPY' } });
    const put = (price: string, attributes?: Record<string, string>) =>
      scene.change((within) =>
        putProducts(within, 's1', [{ sku: 'A', name: 'A', price, ...(attributes && { attributes }) }]),
      );
    await expect(put('100.5')).rejects.toMatchObject({
      code: 'BAD_OPTION',
      message: 'the price 100.5 of product "A" has a decimal place; JPY has none',
    });
    expect(await scene.rows(`select 1 from labels.products where sku = 'A'`)).toEqual([]);
    await put('100.55', { currency: 'EUR' });
    // Its own currency counts, also where only the price is sent.
    await put('100.66');
    await expect(put('100.666')).rejects.toThrow('EUR has 2');
  });

  test('LBL-11: a store cannot take a currency that its prices do not suit', async () => {
    const scene = await shop({ labels: 0, products: 1, store: inEuro });
    const currency = (code: string) =>
      scene.change((within) => putStore(within, scene.box, { code: 's1', currency: code }));
    await expect(currency('JPY')).rejects.toMatchObject({
      code: 'BAD_STATE',
      message: expect.stringContaining('the price 1.00 of product "P0" has 2 decimal places'),
    });
    await currency('KWD');
  });

  test('LBL-10, LBL-11: what cannot be drawn is refused on the call, beyond the first twenty labels, too', async () => {
    const scene = await shop({ labels: 25, products: 25 });
    await scene.change((within) => putTemplate(within, 'tag', template('{{name}}')));
    const products = Array.from({ length: 25 }, (_, at) => ({
      sku: `P${at}`,
      name: at === 24 ? '🎂' : `N${at}`,
    }));
    await expect(scene.change((within) => putProducts(within, 's1', products))).rejects.toMatchObject({
      code: 'LABEL_TEMPLATE',
      message: expect.stringMatching(
        /label 00159DA00018, page 1 \(product "P24"\).*no glyph for "🎂" \(U\+1F382\)/,
      ),
    });
    expect(await scene.rows(`select 1 from labels.products where name like 'N%'`)).toEqual([]);
  });
});

test('LBL-11: built-in templates over the API: list, fetch, preview, copy', async () => {
  const test = await server();
  const ask = await test.as('admin');
  const list = await ask('GET', '/v1/built-in-templates');
  expect(list.body.items).toHaveLength(5);
  expect(list.body.items[1]).toEqual({
    name: 'built-in-296x160',
    width: 296,
    height: 160,
    palettes: ['bw', 'bwr', 'bwy'],
    placeholders: ['currency', 'locale', 'name', 'price', 'sku'],
  });
  const one = await ask('GET', '/v1/built-in-templates/built-in-250x122');
  expect(one.body.svg).toBe(builtInTemplate({ width: 250, height: 122 }));
  for (const palette of ['bw', 'bwr', 'bwy']) {
    const url = `/v1/built-in-templates/built-in-296x160/preview?palette=${palette}&promotion=true`;
    expect((await ask('GET', url)).status).toBe(200);
  }
  expect((await ask('GET', '/v1/built-in-templates/nothing')).status).toBe(404);
  const copy = await ask('PUT', '/v1/label-templates/mine', { copy_of: 'built-in-296x160' });
  expect(copy.body).toMatchObject({ name: 'mine', version: 1 });
  const again = await ask('PUT', '/v1/label-templates/second', { copy_of: 'mine' });
  expect(again.status).toBe(200);
  expect((await ask('GET', '/v1/label-templates/second')).body.svg).toBe(
    builtInTemplate({ width: 296, height: 160 }),
  );
  expect((await ask('PUT', '/v1/label-templates/third', { copy_of: 'nothing' })).status).toBe(404);
  expect((await ask('PUT', '/v1/label-templates/built-in-9x9', { copy_of: 'mine' })).status).toBe(400);
  await ask('PUT', '/v1/stores/s1', { gateway: nowhere, currency: 'EUR', locale: 'de-DE' });
  await ask('PUT', '/v1/label-types/small', { width: 200, height: 200, palette: 'bwr' });
  await ask('POST', '/v1/stores/s1/products', { products: [{ sku: 'P0', name: 'Milk', price: '1.00' }] });
  await ask('POST', '/v1/labels', { labels: [{ mac: labelMac, store: 's1', type: 'small' }] });
  const assigned = await ask('POST', '/v1/label-assignments', {
    assignments: [{ mac: labelMac, sku: 'P0' }],
  });
  expect(assigned.body).toEqual({ labels: 1 });
  expect((await ask('GET', `/v1/labels/${labelMac}`)).body.pages).toMatchObject([
    { template: 'built-in-200x200' },
  ]);
  const preview = await ask('GET', '/v1/label-templates/built-in-296x160/preview?store=s1&sku=P0');
  expect(preview.status).toBe(200);
});

test('LBL-11: built-in templates on the CLI: list, export, copy, put', async () => {
  const { url, drop } = await emptyDatabase();
  const cwd = await scratch();
  const cli = (...args: string[]) =>
    start('src/cli/main.ts', ['labels', 'templates', ...args], { cwd, env: { DATABASE_URL: url } }).ended;
  try {
    await start('src/cli/main.ts', ['migrate'], { cwd, env: { DATABASE_URL: url } }).ended;
    const list = await cli('list', '--built-in');
    expect(list.stdout).toMatch(/NAME +SIZE +PALETTES +NEEDS\nbuilt-in-200x200 +200 × 200 +bw, bwr, bwy/);
    expect(JSON.parse((await cli('list', '--built-in', '--json')).stdout).items).toEqual(
      JSON.parse(JSON.stringify(listBuiltIns())),
    );
    expect((await cli('list')).stdout).toContain('No templates of your own');
    expect((await cli('export', 'built-in-296x160')).stdout).toBe(
      builtInTemplate({ width: 296, height: 160 }),
    );
    expect((await cli('export', 'built-in-296x160', '-o', 'price.svg')).stdout).toBe('price.svg\n');
    const svg = await readFile(join(cwd, 'price.svg'), 'utf8');
    await writeFile(join(cwd, 'price.svg'), svg.replace('{{name}}', '{{name|upper}}'));
    expect((await cli('copy', 'built-in-296x160', 'price')).stdout).toBe('price, version 1\n');
    expect((await cli('put', 'price', 'price.svg')).stdout).toBe('price, version 2\n');
    expect((await cli('export', 'price')).stdout).toContain('{{name|upper}}');
    expect(JSON.parse((await cli('list', '--json')).stdout).items).toMatchObject([
      { name: 'price', version: 2 },
    ]);
    expect(await cli('export', 'nothing')).toMatchObject({ code: 3 });
    expect(await cli('put', 'price', 'nothing.svg')).toMatchObject({ code: 2 });
  } finally {
    await drop();
  }
});
