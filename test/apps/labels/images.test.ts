import { SaxesParser } from 'saxes';
import { expect, onTestFinished, test, vi } from 'vitest';
import { Images } from '../../../src/apps/labels/images.ts';
import { RenderPool } from '../../../src/apps/labels/render/index.ts';
import { putTemplate } from '../../../src/apps/labels/templates.ts';
import { shop, template } from './support.ts';

const panel = { width: 200, height: 200, palette: 'bw' } as const;
const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="200" height="200">
  <tally-text x="8" y="30" width="184" font-size="20">{{name}} {{brand?}}</tally-text>
  <rect tally-if="promoPrice" x="8" y="60" width="50" height="50"/></svg>`;

test('LBL-6 an image that is remembered is that of all values, also of those that a template can do without', async () => {
  const images = new Images();
  const hashOf = async (values: Record<string, string>) =>
    (await images.render('t', { svg, values, panel })).hash;
  const plain = await hashOf({ name: 'Tea' });
  const branded = await hashOf({ name: 'Tea', brand: 'Leaf' });
  const rebranded = await hashOf({ name: 'Tea', brand: 'Root' });
  const reduced = await hashOf({ name: 'Tea', promoPrice: '1.00' });
  expect(new Set([plain, branded, rebranded, reduced]).size).toBe(4);
  expect(await hashOf({ brand: 'Leaf', name: 'Tea' })).toBe(branded);
});

test('LBL-6 the same design is drawn once', async () => {
  const images = new Images();
  const design = { svg, values: { name: 'Tea', brand: 'Leaf' }, panel };
  const image = await images.render('t', design);
  expect(images.has({ ...design, values: { brand: 'Leaf', name: 'Tea' } })).toBe(true);
  expect(await images.render('t', design)).toBe(image);
});

test('SEC-2: a template of a tenant is read in a process, once; what is wrong with it is told', async () => {
  const read = vi.spyOn(RenderPool.prototype, 'read');
  const here = vi.spyOn(SaxesParser.prototype, 'write');
  onTestFinished(() => void vi.restoreAllMocks());
  const scene = await shop({ labels: 0, products: 0 });
  read.mockClear();
  here.mockClear();
  const put = (text: string) => scene.change((c) => putTemplate(c, 'tag', text));
  await put(template('{{brand}} {{name}}'));
  await put(template('{{brand}} {{name}}'));
  expect(read).toHaveBeenCalledTimes(1);
  await expect(put(template('{{brand'))).rejects.toMatchObject({
    code: 'LABEL_TEMPLATE',
    details: { line: 3 },
  });
  expect(here).not.toHaveBeenCalled();
  expect(await new Images().template('t', template('{{brand}}'))).toEqual({
    placeholders: ['brand'],
    width: 200,
    height: 200,
  });
});
