import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { assign } from '../../../src/apps/labels/assignments.ts';
import { putLabelType } from '../../../src/apps/labels/label-types.ts';
import { putLabels } from '../../../src/apps/labels/labels.ts';
import { putProducts } from '../../../src/apps/labels/products.ts';
import { putStore } from '../../../src/apps/labels/stores.ts';
import { putTemplate } from '../../../src/apps/labels/templates.ts';
import { Database } from '../../../src/engine/database/database.ts';
import { SecretBox } from '../../../src/secrets/box.ts';
import { scratch, start } from '../../cli/support.ts';
import { emptyDatabase } from '../../support/postgres.ts';
import { mac, nowhere, template } from './support.ts';

/** Store 0042 with a label that shows product P0. */
async function store() {
  const { url, drop } = await emptyDatabase();
  const cwd = await scratch();
  const cli = (...args: string[]) =>
    start('src/cli/main.ts', args, { cwd, env: { DATABASE_URL: url } }).ended;
  expect(await cli('migrate')).toMatchObject({ code: 0 });
  const database = await Database.connect({ url });
  onTestFinished(async () => {
    await database.close();
    await drop();
  });
  await database.transaction(async (tx) => {
    const change = { tx, tenantId: 'default' };
    await putStore(change, new SecretBox(Buffer.alloc(32)), { code: '0042', gateway: nowhere });
    await putLabelType(change, { name: 'small', width: 200, height: 200, palette: 'bw' });
    await putTemplate(change, 'tag', template());
    await putProducts(change, '0042', [{ sku: 'P0', name: 'Milk', price: '1.00' }]);
    await putLabels(change, [{ mac: mac(1), store: '0042', type: 'small' }]);
    await assign(change, [{ mac: mac(1), sku: 'P0', template: 'tag' }]);
  });
  const jobs = async () => (await database.query('select 1 from tallyman.jobs')).rows.length;
  return { cli, cwd, database, jobs };
}

test('LBL-1: labels list, show, preview and resync', async () => {
  const { cli, cwd, jobs } = await store();
  const list = await cli('labels', 'list', '--store', '0042');
  expect(list.stdout).toMatch(/MAC +STORE +TYPE +STATE\n00159DA00001 +0042 +small +waiting/);
  expect(JSON.parse((await cli('labels', 'list', '--json')).stdout).items).toMatchObject([{ mac: mac(1) }]);
  const shown = await cli('labels', 'show', '00:15:9d:a0:00:01');
  expect(shown.stdout).toMatch(/shows +P0 through tag\nstate +waiting/);
  expect(await cli('labels', 'show', '00159DA0FFFF')).toMatchObject({ code: 3 });
  expect(await cli('labels', 'show', 'xyz')).toMatchObject({ code: 2 });
  const preview = await cli('labels', 'preview', mac(1));
  expect(preview.stdout).toBe(`${mac(1)}-1.png: 200 × 200, bw\n`);
  expect((await readFile(join(cwd, `${mac(1)}-1.png`))).subarray(1, 4).toString()).toBe('PNG');
  const sheet = await cli('labels', 'preview', '--sheet', '-o', 'sheet.png', '--json');
  expect(JSON.parse(sheet.stdout).files[0]).toBe('sheet-1.png');
  expect((await readFile(join(cwd, 'sheet-1.png'))).subarray(1, 4).toString()).toBe('PNG');
  expect(await cli('labels', 'preview')).toMatchObject({ code: 2 });
  expect((await cli('labels', 'resync', mac(1))).stdout).toBe('1 label will be pushed to again.\n');
  expect(JSON.parse((await cli('labels', 'resync', '--store', '0042', '--json')).stdout)).toEqual({
    labels: 1,
  });
  expect(await jobs()).toBe(3);
  expect(await cli('labels', 'resync')).toMatchObject({ code: 2 });
});

test('LBL-2, LBL-10: labels import takes in a file by batches; bad lines are told by number, their batch is left out', async () => {
  const { cli, cwd, database, jobs } = await store();
  const lines = Array.from({ length: 1200 }, (_, i) => `N${i},New ${i},${i}.50,kg`);
  lines[0] = 'P0,Milk,1.20,l';
  lines[700] = 'N700,Seven hundred,free,kg';
  lines[701] = 'N701,too short';
  await writeFile(join(cwd, 'products.csv'), ['\ufeffsku,name,price,unit', ...lines, ''].join('\r\n'));
  const products = async () =>
    (await database.query<{ n: number }>('select count(*)::int as n from labels.products')).rows[0]?.n;

  const dry = await cli('labels', 'import', 'products.csv', '--store', '0042', '--dry-run');
  expect(dry.code).toBe(1);
  expect(dry.stdout).toContain('1,200 lines: 699 new, 1 changed, 0 as they were; a new image for 1 label.');
  expect(dry.stdout).toContain('Nothing was changed.');
  expect([await products(), await jobs()]).toEqual([1, 1]);

  const ended = await cli('labels', 'import', 'products.csv', '--store', '0042');
  expect(ended.code).toBe(1);
  expect(ended.stderr).toContain(
    'line 702: the price of product "N700" must be a number such as 1.99, got "free"',
  );
  expect(ended.stderr).toContain('line 703: has 2 fields; the first line names 4 columns');
  expect(ended.stdout).toContain('2 bad lines; 498 good ones beside them left out.');
  expect([await products(), await jobs()]).toEqual([700, 2]);

  lines[700] = 'N700,Seven hundred,7.00,kg';
  lines[701] = 'N701,"Seven hundred, and one",7.01,kg';
  await writeFile(join(cwd, 'products.csv'), ['sku,name,price,unit', ...lines].join('\n'));
  const again = await cli('labels', 'import', 'products.csv', '--store', '0042', '--json');
  expect(JSON.parse(again.stdout)).toEqual({
    lines: 1200,
    made: 500,
    changed: 0,
    unchanged: 700,
    labels: 0,
    bad: [],
    left: 0,
  });
  expect(await cli('labels', 'import', 'products.csv', '--store', 'nope')).toMatchObject({ code: 3 });
  expect(await cli('labels', 'import', 'missing.csv', '--store', '0042')).toMatchObject({ code: 2 });
});

test('LBL-10: files that are no tables of products', async () => {
  const { cli, cwd, jobs } = await store();
  const take = async (text: string) => {
    await writeFile(join(cwd, 'p.csv'), text);
    const { code, stderr } = await cli('labels', 'import', 'p.csv', '--store', '0042');
    return { code, stderr: stderr.trim() };
  };
  expect(await take('')).toEqual({
    code: 1,
    stderr: 'line 1: the file is empty: its first line names the columns',
  });
  expect(await take('a,b\n1,2')).toEqual({
    code: 1,
    stderr: 'line 1: there is no column "sku"; the columns are a, b',
  });
  expect(await take('sku;name;price\nP0;Milk;1.30')).toEqual({ code: 0, stderr: '' });
  expect((await take('sku,name\nP0,"Milk\nP1,Bread\n')).stderr).toMatch(/^line \d+: cannot be read: /);
  expect((await take('sku,name\nP9,a\nP9,b')).stderr).toBe('line 3: product "P9" stands in line 2 already');
  // Nothing is wrong with the line; the label could not show it.
  expect((await take('sku,price\nP0,')).stderr).toMatch(
    /^line 2: lines 2 to 2: label 00159DA00001, page 1.*\{\{price\}\}/,
  );
  expect(await jobs()).toBe(2);
});
