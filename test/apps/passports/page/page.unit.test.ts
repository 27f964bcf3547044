import { expect, test } from 'vitest';
import {
  type CompileInput,
  type Reader,
  readerPoints,
} from '../../../../src/apps/passports/compile/index.ts';
import { disclose, type PassportSource } from '../../../../src/apps/passports/page/disclosure.ts';
import { contentSecurityPolicy, renderPage } from '../../../../src/apps/passports/page/page.ts';
import { type Language, languageFor, languages } from '../../../../src/apps/passports/page/texts.ts';
import { formatNumber, formatValue } from '../../../../src/apps/passports/page/values.ts';
import { viewOf } from '../../../../src/apps/passports/page/view.ts';
import { items, product, rule, rulePackage } from '../compile/support.ts';
import { individualRecord, sourceWith } from './sample.ts';

const page = (
  reader: Reader,
  language: Language,
  change: Partial<PassportSource> = {},
  input: Partial<CompileInput> = {},
): string => renderPage(viewOf(disclose(sourceWith(change, input), reader)), language);

/** Texts that only readers of one point may see, from the sample's documents. */
const secrets = {
  2: ['service/pack-100/dismantling.pdf', 'ethyl methyl carbonate', '30.5', 'bill-of-materials.csv'],
  3: ['reports/pack-100-2026.pdf', 'test-reports.csv'],
  4: ['43.7', 'individual.csv', '45,600', '45600', '>original<'],
} as const;

test.each(['public', 'legitimate_interest', 'authority'] as const)(
  'BPC-12: the page for %s has what its points allow, and nothing of the others',
  (reader) => {
    const shown = page(reader, 'en');
    for (const [point, texts] of Object.entries(secrets))
      for (const text of texts) {
        const may = readerPoints[reader].some((each) => String(each) === point);
        if (!may) expect(shown, `${reader} must not see ${text}`).not.toContain(text);
      }
    expect(shown).toContain('data-sheet.csv, row 23, column “value”');
    if (reader !== 'authority') expect(shown).not.toContain('pack-100-2026.pdf');
    else expect(shown).toContain('pack-100-2026.pdf');
    if (reader === 'legitimate_interest') expect(shown).toContain('43.7 %');
    if (reader !== 'public') expect(shown).toContain('ethyl methyl carbonate');
  },
);

test('BPC-12: the page says what is withheld, by which point, and who may see it', () => {
  const shown = page('public', 'en');
  expect(shown).toContain('What is not shown here');
  expect(shown).toContain('Test reports <small>(Annex XIII, point 3)</small>');
  expect(shown).toContain('notified bodies, market surveillance authorities and the Commission');
  expect(shown).toContain('Materials of cathode, anode and electrolyte');
  expect(page('legitimate_interest', 'en')).not.toContain('point 4)');
});

test('BPC-17: how a number was made goes down to document and row, or says that it may not be shown', () => {
  const view = viewOf(disclose(sourceWith(), 'public'));
  const derivation = (name: string) =>
    view.groups.flatMap(({ fields }) => fields).find((field) => field.name === name)?.derivation;
  expect(derivation('ratedEnergy')?.steps).toMatchObject([
    {
      text: 'kWh(sheet.nominalVoltage * sheet.ratedCapacity)',
      steps: [
        {
          text: 'sheet.nominalVoltage * sheet.ratedCapacity',
          steps: [
            { kind: 'fact', key: 'nominalVoltage', sources: [{ row: 26, column: 'value' }] },
            { kind: 'fact', key: 'ratedCapacity', sources: [{ row: 23, column: 'value' }] },
          ],
        },
      ],
    },
  ]);
  expect(derivation('footprintPerFunctionalUnit')?.steps).toBeNull();
  const privileged = page('legitimate_interest', 'en');
  expect(privileged).toContain('exactly 7300000000 ÷ 45600, rounded half to even');
  expect(page('public', 'en')).toContain('computed from facts that you may not see');
});

test.each(languages)('BPC-17: the page in %s has a text for every attribute, and no hole', (language) => {
  for (const reader of ['public', 'legitimate_interest', 'authority'] as const) {
    const shown = page(reader, language);
    expect(shown).toContain(`<html lang="${language}">`);
    expect(shown).not.toMatch(/undefined|\[object|NaN/);
    for (const { field } of rulePackage.rules)
      expect(shown).not.toContain(`<span class="name">${field}</span>`);
  }
  expect(page('public', 'de')).toContain('0,160088 kg CO₂e je kWh');
  expect(page('public', 'de')).toContain('Nicht bestimmt: der delegierte Rechtsakt');
});

test('BPC-17: Accept-Language chooses, by quality and order; English if nothing fits', () => {
  expect(languageFor('de-AT,de;q=0.9,en;q=0.8')).toBe('de');
  expect(languageFor('fr,en;q=0.5,de;q=0.7')).toBe('de');
  expect(languageFor('de;q=0, en')).toBe('en');
  expect(languageFor('fr')).toBe('en');
  expect(languageFor(undefined)).toBe('en');
});

test('BPC-9: the page says that the signature is valid, unknown or broken, and that it is no qualified seal', () => {
  expect(page('public', 'en')).toContain('The signature is valid');
  expect(page('public', 'en')).toContain('✓ Signature valid');
  expect(page('public', 'en')).toContain('not a qualified electronic seal');
  expect(page('public', 'de')).toContain('kein qualifiziertes elektronisches Siegel');
  expect(page('public', 'en', { publicKeys: {} })).toContain('The signature cannot be checked');
  const source = sourceWith();
  const signature = Uint8Array.from(source.version.signature);
  signature[5] = (signature[5] ?? 0) ^ 1;
  const broken = { ...source, version: { ...source.version, signature } };
  expect(renderPage(viewOf(disclose(broken, 'public')), 'en')).toContain('The signature does not fit');
  const foreign = sourceWith({}, { issuedAt: '2027-04-01T00:00:00Z' }).model;
  expect(renderPage(viewOf(disclose({ ...source, model: foreign }, 'public')), 'en')).toContain(
    'The signature does not fit',
  );
});

test('BPC-11: superseded, revoked and ceased passports say so; of a ceased one only a note is left', () => {
  const superseded = page('public', 'en', {
    state: 'SUPERSEDED',
    supersededBy: { version: 'x', issuedAt: '2028-01-01T00:00:00Z' },
  });
  expect(superseded).toContain('A newer version has taken the place of this one. Since 1 January 2028.');
  expect(superseded).toContain('href="https://passports.example/01/09506000134352/21/SP100-000001"');
  expect(page('public', 'de', { state: 'REVOKED' })).toContain('widerrufen');
  for (const reader of ['public', 'legitimate_interest', 'authority'] as const) {
    const ceased = page(reader, 'en', { ceasedAt: '2039-05-01T00:00:00Z' });
    expect(ceased).toContain('has ceased to exist');
    expect(ceased).toContain('Since 1 May 2039.');
    expect(ceased).not.toContain('99.962');
    expect(ceased).not.toContain('43.7');
    // Nothing that could be taken for a passport: no codes, no signature.
    expect(ceased).not.toContain('<svg');
    expect(ceased).not.toContain('ignature');
  }
});

test('BPC-11, BPC-17: a version that has ended has no green mark, and says so again where the codes are', () => {
  const valid = (text: string): string | undefined =>
    /<span class="badge (\w+)">✓ Signature valid/.exec(text)?.[1];
  const sentences = {
    ACTIVE: 'This is the version in force.',
    SUPERSEDED: 'A newer version has taken the place of this one.',
    REVOKED: 'The issuer has revoked this version. Do not rely on it.',
  } as const;
  for (const [state, tone, mark] of [
    ['ACTIVE', 'good', 'good'],
    ['SUPERSEDED', 'warn', 'plain'],
    ['REVOKED', 'bad', 'plain'],
  ] as const) {
    const shown = page('public', 'en', { state });
    expect([state, valid(shown)]).toEqual([state, mark]);
    expect(shown).toContain(`<section class="head is-${tone}">`);
    const [, verification = ''] = shown.split('<section id="verification">');
    expect(verification.includes(`<p class="notice ${tone}">${sentences[state]}</p>`)).toBe(
      state !== 'ACTIVE',
    );
  }
  expect(page('public', 'en', { state: 'REVOKED', publicKeys: {} })).toContain('<span class="badge bad">✗');
  expect(page('public', 'en', { ceasedAt: '2039-05-01T00:00:00Z' })).toContain(
    '<section class="head is-warn">',
  );
});

test('BPC-17: on paper the legend keeps its colours, no heading stands alone, and the address has a line of its own', () => {
  const shown = page('public', 'en');
  const [, print = ''] = shown.split('@media print{');
  expect(print).toMatch(/\.legend i\{[^}]*print-color-adjust:exact/);
  expect(print).toMatch(/h2,h3\{break-after:avoid\}/);
  expect(print).toMatch(/#withheld>p\{break-after:avoid\}/);
  expect(print).toMatch(/\.notice\.bad\{border-width:1\.5pt/);
  // Beside a code there is no room for it on a phone: it broke within the name of the host.
  expect(shown).toMatch(/<p class="address">Label code: https:\/\/passports\.example\//);
  expect(shown).not.toMatch(/<figcaption>[^§]*?passports\.example[^§]*?<\/figcaption>/);
});

test('BPC-17: everything is escaped, wherever it comes from, and only web addresses become links', () => {
  const evil = `"><script>alert(1)</script><img src=x onerror='x'>\u0000`;
  const rules = {
    ...rulePackage,
    rules: [
      rule('batteryId', 'item.serial', 'string', { granularity: 'item' }),
      rule('manufacturer', 'product.manufacturer', 'string'),
      rule('status', 'item.status + "<b>"', 'string', { granularity: 'item', point: 4 }),
      rule('operator', '"javascript:alert(1)"', 'string'),
    ],
    testCases: [],
  };
  const input = {
    product: { ...product, name: evil, manufacturer: evil },
    item: { ...(items[0] as NonNullable<(typeof items)[0]>), serial: `'"<b>&` },
  };
  const source = sourceWith(
    {
      predecessors: [{ passportId: evil, gtin: product.gtin, serial: evil }],
      individual: [individualRecord(1, evil, { [evil]: evil })],
    },
    input,
    rules,
  );
  const shown = renderPage(viewOf(disclose(source, 'legitimate_interest')), 'en');
  expect(shown).not.toContain('<script');
  expect(shown).not.toContain('<img');
  expect(shown).not.toContain('<b>"');
  expect(shown).not.toContain('href="javascript');
  expect(shown).not.toContain('\u0000');
  expect(shown).toContain('&lt;script&gt;alert(1)&lt;/script&gt;');
});

test('BPC-17: the policy allows no script, and the style sheet only by its hash', () => {
  expect(contentSecurityPolicy).toMatch(/^default-src 'none'; style-src 'sha256-[A-Za-z0-9+/=]{44}'; /);
  expect(page('public', 'en')).not.toMatch(/<script|\sstyle=|\son\w+=/);
});

test('numbers are shown exactly, in the way of the language', () => {
  expect(formatNumber('1234567.50', 'de')).toBe('1.234.567,50');
  expect(formatNumber('-30', 'en')).toBe('−30');
  expect(formatValue({ value: 5800, scale: 1, unit: 'kg' }, 'en')).toBe('580 kg');
  expect(formatValue({ value: '90071992547409930', scale: 1, unit: 'Wh' }, 'en')).toBe(
    '9,007,199,254,740,993 Wh',
  );
});
