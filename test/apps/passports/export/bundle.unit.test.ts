import { expect, test } from 'vitest';
import { type Reader, readerPoints } from '../../../../src/apps/passports/compile/index.ts';
import { documents, rulePackage } from '../../../../src/apps/passports/compile/sample/index.ts';
import { bundleOf } from '../../../../src/apps/passports/export/bundle.ts';
import { tarOf, untar } from '../../../../src/apps/passports/export/tar.ts';
import { isBundle, verifyBundle } from '../../../../src/apps/passports/export/verify-bundle.ts';
import type { PassportSource } from '../../../../src/apps/passports/page/disclosure.ts';
import { viewOf } from '../../../../src/apps/passports/page/view.ts';
import { disclosedSample, publicKey, signBytes } from '../page/sample.ts';

const signer = { keyId: 'key-1', sign: signBytes };
const keys = { 'key-1': publicKey };
const readers: readonly Reader[] = ['public', 'legitimate_interest', 'authority', 'owner'];

const bundle = (reader: Reader, change: Partial<PassportSource> = {}) =>
  bundleOf({
    disclosed: disclosedSample(reader, change),
    signer,
    documents: documents.map(({ name, input }) => ({ name, ...input })),
    rules: [rulePackage],
  });

function filesOf(bytes: Uint8Array): Map<string, Uint8Array> {
  const files = untar(bytes);
  if (typeof files === 'string') throw new Error(files);
  return new Map(files);
}

const repacked = (files: ReadonlyMap<string, Uint8Array>): Uint8Array =>
  tarOf([...files].map(([path, bytes]) => ({ path, bytes })));

test.each(readers)(
  'BPC-15, BPC-16: the bundle for %s verifies offline, documents row by row',
  async (reader) => {
    const bytes = await bundle(reader);
    expect(isBundle(bytes)).toBe(true);
    const qr = viewOf(disclosedSample(reader)).documentCode;
    const report = verifyBundle(bytes, { keys, qr });
    expect(report).toMatchObject({ ok: true, keysFrom: 'reader', state: 'ACTIVE', mismatches: [] });
    expect(report.checked).toContain('bundle: signature, over the manifest');
    expect(report.checked).toContain('documents: data-sheet.csv, 37 facts where the proof says');
    expect(report.checked.join('\n')).toMatch(/\d\d fields, computed again from their facts/);
    expect([...filesOf(bytes).keys()]).toEqual(
      expect.arrayContaining([
        'passport.json',
        'did.json',
        'facts.json',
        'credential.jsonld',
        'credential.jwt',
        'page/en.html',
        'page/de.pdf',
        'codes/document.png',
        reader === 'owner'
          ? 'rules/eu-2023-1542-ev-1.0.0.json'
          : 'rules/eu-2023-1542-ev-1.0.0.without-cases.json',
      ]),
    );
    expect(Buffer.compare(bytes, await bundle(reader))).toBe(0);
  },
);

test('BPC-12: the bundle of a reader has no document, fact, rule or page with what the reader may not see', async () => {
  const secrets = {
    2: ['dismantling.pdf', 'ethyl methyl carbonate', 'bill-of-materials.csv'],
    3: ['pack-100-2026.pdf', 'test-reports.csv'],
    4: ['individual.csv', '"annualCycles"', 'lifetimeYears,8'],
  } as const;
  for (const reader of readers) {
    const text = Buffer.from(await bundle(reader))
      .toString('latin1')
      .replaceAll('\\"', '"');
    for (const [point, hidden] of Object.entries(secrets)) {
      const may = readerPoints[reader].some((each) => String(each) === point);
      for (const secret of hidden)
        expect(text.includes(secret), `${reader} ${may ? 'sees' : 'does not see'} ${secret}`).toBe(may);
    }
  }
});

test('BPC-15: whatever is changed in a bundle is found and named', async () => {
  const bytes = await bundle('owner');
  const changed = (path: string, change: (text: string) => string): readonly string[] => {
    const files = filesOf(bytes);
    files.set(path, Buffer.from(change(Buffer.from(files.get(path) ?? []).toString('utf8'))));
    return verifyBundle(repacked(files), { keys }).mismatches.map(({ message }) => message);
  };
  expect(changed('page/en.html', (text) => text.replace('580', '500'))).toEqual([
    'file page/en.html: was changed',
  ]);
  expect(changed('manifest.json', (text) => text.replace('ACTIVE', 'ACTIVF'))).toEqual([
    'signature manifest.sig: is not the signature of manifest.json',
  ]);
  expect(changed('rules/eu-2023-1542-ev-1.0.0.json', (text) => text.replace('1.0.0', '1.0.1'))).toContain(
    'file rules/eu-2023-1542-ev-1.0.0.json: was changed',
  );
  const [sheet = ''] = [...filesOf(bytes)].flatMap(([path, content]) =>
    Buffer.from(content).includes('ratedCapacity,151') && path.endsWith('.csv') ? [path] : [],
  );
  expect(changed(sheet, (text) => text.replace('ratedCapacity,151', 'ratedCapacity,152'))).toEqual(
    expect.arrayContaining([
      `file ${sheet}: was changed`,
      'documents data-sheet.csv: is not there, was changed, or cannot be read',
    ]),
  );
  const files = filesOf(bytes);
  files.set('extra.txt', Buffer.from('x'));
  files.delete('facts.json');
  expect(verifyBundle(repacked(files), { keys }).mismatches.map(({ message }) => message)).toEqual([
    'file facts.json: is in the manifest, and not in the bundle',
    'file extra.txt: is in the bundle, and not in the manifest',
  ]);
  expect(verifyBundle(bytes, { keys: { 'key-1': new Uint8Array(32) } }).ok).toBe(false);
  expect(verifyBundle(bytes.subarray(0, 3000), { keys })).toMatchObject({
    ok: false,
    mismatches: [{ part: 'file' }],
  });
});

test('BPC-16: the bundle of a revoked passport has no credential, and does not verify as one that counts', async () => {
  const bytes = await bundle('public', { state: 'REVOKED', endedAt: '2028-01-01T00:00:00Z' });
  expect([...filesOf(bytes).keys()].filter((path) => path.startsWith('credential'))).toEqual([]);
  expect(verifyBundle(bytes, { keys })).toMatchObject({
    ok: false,
    state: 'REVOKED',
    mismatches: [{ part: 'state', message: expect.stringContaining('2028-01-01') }],
  });
});

test('an archive keeps long names, and refuses what is none', () => {
  const path = `${'folder/'.repeat(20)}file.txt`;
  const files = untar(tarOf([{ path, bytes: Buffer.from('hello') }]));
  expect(typeof files === 'string' ? files : Buffer.from(files.get(path) ?? []).toString()).toBe('hello');
  expect(untar(new Uint8Array(600).fill(7))).toBe('is no tar archive');
  expect(untar(new Uint8Array(0))).toBe('is no whole tar archive');
  expect(() => tarOf([{ path: 'x'.repeat(300), bytes: new Uint8Array() }])).toThrow('too long');
});
