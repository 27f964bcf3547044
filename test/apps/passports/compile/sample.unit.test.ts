import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'csv-parse/sync';
import { describe, expect, test } from 'vitest';
import {
  type AccessPoint,
  attributes,
  compile,
  type FieldResult,
  mandatoryFor,
  parseDocument,
  runTestCases,
} from '../../../../src/apps/passports/compile/index.ts';
import { documents } from '../../../../src/apps/passports/compile/sample/index.ts';
import { unitNamed } from '../../../../src/apps/passports/compile/units.ts';
import { checked, inputWith, product, rulePackage, sampleFacts, textOf } from './support.ts';

/** Reference data lie beside the repository, not in it: REFERENCE_DATA names another folder. */
const folder = process.env.REFERENCE_DATA ?? join(import.meta.dirname, '../../../../../shared/data');
const reference = join(folder, 'battery-passport-attributes.csv');
const isThere = existsSync(reference);
if (!isThere)
  console.warn(`the list of attributes is not compared with the reference: ${reference} is not there`);

const rules = checked(rulePackage);
const { payload } = compile(inputWith(), rules);
const results: Readonly<Record<string, FieldResult>> = Object.assign(
  {},
  ...([1, 2, 3, 4] as const).map((point) => payload.points[point].fields),
);

describe('BPC-17: the sample', () => {
  test('BPC-17: every attribute that is mandatory for an EV battery has a value or a stated reason', () => {
    const missing = mandatoryFor('ev').filter(({ name }) => {
      const result = results[name];
      return !(result?.status === 'value' || (result && 'reason' in result && result.reason.length > 10));
    });
    expect(missing).toEqual([]);
    const reasons = mandatoryFor('ev').filter(({ name }) => results[name]?.status !== 'value');
    expect(reasons.map(({ name }) => name).sort()).toEqual([
      'footprintClass',
      'stateOfCharge',
      'temperature',
    ]);
  });

  test('BPC-17: each field is at the access point of its attribute', () => {
    for (const { name, point } of mandatoryFor('ev'))
      expect(payload.points[point].fields).toHaveProperty(name);
  });

  test('BPC-17: the figures are those of the sample battery', () => {
    const figure = (field: string) => {
      const result = results[field];
      return result?.status === 'value' ? result.value : result;
    };
    expect(figure('mass')).toEqual({ value: 5800, scale: 1, unit: 'kg' });
    expect(figure('ratedEnergy')).toEqual({ value: 99962, scale: 3, unit: 'kWh' });
    expect(figure('energyDelivered')).toEqual({ value: 45600, scale: 0, unit: 'kWh' });
    expect(figure('footprintPerFunctionalUnit')).toEqual({ value: 160088, scale: 6, unit: 'kgCO2e/kWh' });
    expect(figure('criticalRawMaterials')).toHaveLength(7);
    expect(figure('electrodeMaterials')).toHaveLength(10);
  });

  test('BPC-6: all test cases of its rule package pass, and would not with other rules', () => {
    expect(runTestCases(rules).filter(({ passed }) => !passed)).toEqual([]);
    const wrong = rulePackage.rules.map((each) =>
      each.field === 'mass' ? { ...each, expression: 'sum(materials.map(m, m.mass)) + Kg("0.1")' } : each,
    );
    const outcomes = runTestCases(checked({ ...rulePackage, rules: wrong }));
    expect(outcomes.filter(({ passed }) => !passed).map(({ name }) => name)).toEqual(['the sample battery']);
  });

  test('BPC-17: each data sheet has facts of one access point, so that its hash can be shown to their readers', () => {
    const { proof } = compile(inputWith(), rules);
    expect(proof.documents).toHaveLength(documents.length);
    for (const { points } of proof.documents) expect(points).toHaveLength(1);
  });

  test('BPC-17: invented values say so', () => {
    const anchors = /^(chemistry|ratedCapacity|(minimum|nominal|maximum)Voltage|idleTemperature(Min|Max)),/;
    for (const { input } of documents)
      for (const line of textOf(input.bytes).trim().split('\n').slice(1))
        expect(line.endsWith(',invented')).toBe(!anchors.test(line));
  });

  test('its documents are read without problems, and its product is well formed', () => {
    for (const { input } of documents) expect(parseDocument(input)).toMatchObject({ ok: true });
    expect(sampleFacts()).toHaveLength(18 + 4 + 5 + 37 + 4 + 1 + 8);
    expect(product.gtin).toHaveLength(14);
  });
});

describe('the list of attributes', () => {
  test('has unique names, and types that rules know', () => {
    expect(new Set(attributes.map(({ name }) => name)).size).toBe(attributes.length);
    for (const { type, title } of attributes) {
      expect(
        ['string', 'int', 'list<string>', 'list<Material>', 'list<Percent>'].includes(type) ||
          unitNamed(type),
      ).toBeTruthy();
      expect(title.de).not.toBe('');
    }
  });

  test.skipIf(!isThere)(
    'BPC-17: agrees with the reference on obligations, access, units and dynamic data',
    () => {
      const rows: Record<string, string>[] = parse(readFileSync(reference, 'utf8'), { columns: true });
      // Ours has figures beside the list that only feed others; the order is that of the reference.
      const ours = attributes.filter(({ mandatory, voluntary }) => mandatory.length + voluntary.length > 0);
      expect(ours).toHaveLength(rows.length);
      const pointOf = (access: string): AccessPoint => {
        if (access === 'Public') return 1;
        if (access.startsWith('Notified')) return 3;
        return access.includes('Commission') ? 2 : 4;
      };
      const letter = (category: 'ev' | 'lmt' | 'industrial' | 'stationary', at: number): string => {
        if (ours[at]?.mandatory.includes(category)) return 'x';
        return ours[at]?.voluntary.includes(category) ? 'o' : '';
      };
      for (const [at, row] of rows.entries()) {
        const one = ours[at];
        const about = `${row.attribute} / ${one?.name}`;
        expect(
          [letter('ev', at), letter('lmt', at), letter('industrial', at), letter('stationary', at)],
          about,
        ).toEqual([row.EV, row.LMT, row.industrial, row.stationary]);
        expect(one?.point, about).toBe(pointOf(row.access ?? ''));
        // A model can be made in several places: ours says where this battery was.
        const granularity = one?.name === 'manufacturingPlace' ? 'Battery model' : row.granularity;
        expect(granularity, about).toBe(
          one?.granularity === 'model' || one?.name === 'manufacturingPlace'
            ? 'Battery model'
            : 'Individual battery',
        );
        expect(one?.dynamic, about).toBe(row.static_dynamic === 'Dynamic');
        const symbol = unitNamed(one?.type ?? '')?.symbol;
        const given =
          { '-': undefined, 'n.a.': undefined, Minutes: undefined, years: 'a', '[tCO2e]': 'kgCO2e' }[
            row.unit ?? ''
          ] ?? row.unit;
        if (symbol && !['month', 'cycle'].includes(symbol)) expect(given?.trim(), about).toBe(symbol);
      }
    },
  );
});
