import { execFileSync } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inflateSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { disclose, type PassportSource } from '../../../../src/apps/passports/page/disclosure.ts';
import { viewOf } from '../../../../src/apps/passports/page/view.ts';
import { renderLabel } from '../../../../src/apps/passports/print/label.ts';
import { codeWidths, renderPdf } from '../../../../src/apps/passports/print/pdf.ts';
import { type LabelSize, labelSizes } from '../../../../src/apps/passports/print/sizes.ts';
import { qrModules } from '../../../../src/apps/passports/qr/modules.ts';
import { printableQrPng, qrPng } from '../../../../src/apps/passports/qr/png.ts';
import { sourceWith } from '../page/sample.ts';
import { jsQr, pageImage, zbar } from './decoders.ts';
import { streamsOf, textOfPdf } from './pdf-text.ts';

const view = viewOf(disclose(sourceWith(), 'public'));
const sizes = Object.keys(labelSizes) as readonly LabelSize[];
let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'passport-pdf-'));
});
afterAll(() => rm(folder, { recursive: true, force: true }));

const isInstalled = (tool: string): boolean => {
  try {
    execFileSync('sh', ['-c', `command -v ${tool}`]);
    return true;
  } catch {
    return false;
  }
};
const tools = isInstalled('zbarimg') && isInstalled('pdftoppm');
if (!tools) console.warn('codes are not read back: install zbar-tools and poppler-utils');

async function image(name: string, pdf: Uint8Array, dpi: number): Promise<string> {
  const file = join(folder, `${name}.pdf`);
  await writeFile(file, pdf);
  return pageImage(file, dpi);
}

test('BPC-10: the document code has exactly 212 characters', () => {
  expect(view.documentCode).toMatch(
    /^BPC1\|pv=[0-9a-f-]{36}\|ph=[A-Z2-7]{52}\|pr=[A-Z2-7]{52}\|rh=[A-Z2-7]{52}$/,
  );
  expect(view.documentCode).toHaveLength(212);
});

test('BPC-17: the same passport gives the same bytes of PDF and label, another one others', async () => {
  const first = await renderPdf(view, 'de');
  expect(Buffer.compare(first, await renderPdf(view, 'de'))).toBe(0);
  const other = viewOf(disclose(sourceWith({}, { issuedAt: '2027-05-01T00:00:00Z' }), 'public'));
  expect(Buffer.compare(first, await renderPdf(other, 'de'))).not.toBe(0);
  const label = await renderLabel(view, 'en', '50x30');
  expect(Buffer.compare(label, await renderLabel(view, 'en', '50x30'))).toBe(0);
});

test('BPC-12: the PDF for the public has nothing that only others may see', async () => {
  const text = (reader: 'public' | 'owner', change: Partial<PassportSource> = {}): Promise<string> =>
    renderPdf(viewOf(disclose(sourceWith(change), reader)), 'en').then(textOfPdf);
  const [shown, all] = [await text('public'), await text('owner')];
  for (const secret of ['dismantling.pdf', 'PVDF', 'pack-100-2026.pdf', '45,600 kWh']) {
    expect(shown.includes(secret), secret).toBe(false);
    expect(all.includes(secret), secret).toBe(true);
  }
  expect(await text('owner', { ceasedAt: '2039-05-01T00:00:00Z' })).not.toContain('99.962');
});

test('BPC-10: no label is made of a version that does not count', async () => {
  const revoked = viewOf(disclose(sourceWith({ state: 'REVOKED' }), 'owner'));
  await expect(renderLabel(revoked, 'en', '50x30')).rejects.toThrow('is REVOKED');
});

test('BPC-10: the stored image has 10 pixels a module and no border, the printable one 4 modules around', () => {
  const size = (png: Uint8Array): number => Buffer.from(png).readUInt32BE(16);
  const stored = size(qrPng(view.documentCode));
  expect([stored % 10, stored / 10]).toEqual([0, 57]);
  expect(size(printableQrPng(view.documentCode))).toBe(stored + 80);
  expect(Buffer.compare(qrPng(view.documentCode), qrPng(view.documentCode))).toBe(0);
});

test('BPC-10: codes on paper have error correction M, and 4 blank modules before the first dark one', async () => {
  const modules = qrModules(view.documentCode).size;
  expect(modules).toBe(57);
  const millimetre = 72 / 25.4;
  const [page = ''] = streamsOf(await renderPdf(view, 'en', { documentCodeWidth: 20 }));
  const starts = [...page.matchAll(/^(-?[\d.]+) (-?[\d.]+) (-?[\d.]+) (-?[\d.]+) re$/gm)].map(([, x]) =>
    Number(x),
  );
  const labelModule = (codeWidths.label * millimetre) / qrModules(view.labelLink).size;
  expect(Math.min(...starts)).toBeCloseTo(15 * millimetre + 4 * labelModule, 3);
  const second = starts.filter((x) => x > 70 * millimetre);
  expect(Math.min(...second)).toBeCloseTo(75 * millimetre + (4 * 20 * millimetre) / modules, 3);
});

test.skipIf(!tools)('BPC-10: zbar and jsQR read both codes from the PNG', async () => {
  for (const [name, text] of [
    ['document', view.documentCode],
    ['label', view.labelLink],
  ] as const) {
    const file = join(folder, `${name}.png`);
    await writeFile(file, printableQrPng(text));
    expect(await zbar(file)).toEqual([text]);
    await writeFile(join(folder, `${name}.ppm`), ppmOf(await readFile(file)));
    expect(await jsQr(join(folder, `${name}.ppm`))).toBe(text);
  }
});

/** Of a PNG with one bit a pixel, whose rows are as they are or differences to the row above. */
function ppmOf(png: Buffer): Buffer {
  const size = png.readUInt32BE(16);
  const at = png.indexOf('IDAT');
  const raw = inflateSync(png.subarray(at + 4, at + 4 + png.readUInt32BE(at - 4)));
  const stride = Math.ceil(size / 8);
  const pixels = Buffer.alloc(size * size * 3);
  let above = Buffer.alloc(stride);
  for (let y = 0; y < size; y += 1) {
    const start = y * (stride + 1);
    const filter = raw[start];
    if (filter !== 0 && filter !== 2) throw new Error(`filter ${filter} is not expected`);
    const row = Buffer.from(raw.subarray(start + 1, start + 1 + stride));
    if (filter === 2) for (let x = 0; x < stride; x += 1) row[x] = ((row[x] ?? 0) + (above[x] ?? 0)) & 0xff;
    for (let x = 0; x < size; x += 1)
      if ((row[x >> 3] ?? 0) & (0x80 >> (x & 7)))
        pixels.fill(255, (y * size + x) * 3, (y * size + x + 1) * 3);
    above = row;
  }
  return Buffer.concat([Buffer.from(`P6\n${size} ${size}\n255\n`), pixels]);
}

test.skipIf(!tools).each([10, 20, 25, 30])(
  'BPC-10: zbar and jsQR read both codes from the PDF at 300 dpi, document code %i mm wide',
  async (width) => {
    const file = await image(
      `codes-${width}`,
      await renderPdf(view, 'en', { documentCodeWidth: width }),
      300,
    );
    expect(await zbar(file)).toEqual([view.documentCode, view.labelLink].sort());
    const middle = (15 + 58) / 210;
    expect(await jsQr(file, { to: middle, bottom: 0.35 })).toBe(view.labelLink);
    expect(await jsQr(file, { from: middle, bottom: 0.35 })).toBe(view.documentCode);
  },
);

test.skipIf(!tools).each(sizes)(
  'BPC-10: zbar and jsQR read both codes from the label of %s mm at the 203 and 300 dpi of label printers',
  async (size) => {
    const pdf = await renderLabel(view, 'en', size);
    for (const dpi of [203, 300]) {
      const file = await image(`label-${size}-${dpi}`, pdf, dpi);
      expect(await zbar(file)).toEqual([view.documentCode, view.labelLink].sort());
      const { width, height, labelCode, documentCode } = labelSizes[size];
      const middle = height > width ? 0.42 : labelCode / (labelCode + documentCode) + 0.02;
      const [first, second] =
        height > width ? [{ bottom: middle }, { top: middle }] : [{ to: middle }, { from: middle }];
      expect([await jsQr(file, first), await jsQr(file, second)]).toEqual([
        view.labelLink,
        view.documentCode,
      ]);
    }
  },
);
