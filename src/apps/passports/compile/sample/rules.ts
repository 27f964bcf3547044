import { type Attribute, attributes, mandatoryFor } from '../attributes.ts';
import { parseDocument } from '../documents/parse.ts';
import {
  categories,
  type Fact,
  type FieldResult,
  type Rule,
  type RulePackage,
  type RuleTestCase,
} from '../types.ts';
import { documents, items, product } from './documents.ts';

/*
 * Rules for electric-vehicle batteries: one for each mandatory attribute, and for some voluntary ones. What is not computed
 * is taken from a data sheet as it is.
 */

/** The passport itself is asked for from this day on (Art. 77(1)). */
const passports = '2027-02-18';
/** Recycled content, Art. 8(1). */
const recycled = '2028-08-18';
/** Due diligence, Art. 48, as postponed by Regulation (EU) 2025/1561. */
const diligence = '2027-08-18';

const voluntary = ['ratedEnergy', 'certifiedEnergy', 'footprintTotal', 'footprintShares', 'energyDelivered'];

type Change = Partial<Pick<Rule, 'expression' | 'inForceFrom' | 'onMissing' | 'reason'>>;

const share = (index: number): Change => ({ expression: `fields.footprintShares[${index}]` });
const measured: Change = {
  onMissing: 'undetermined',
  reason: 'measured in use: see the individual data of this battery',
};

const changes: Readonly<Record<string, Change>> = {
  passportId: { expression: '"01/" + product.gtin + "/21/" + item.serial' },
  batteryId: { expression: 'item.serial' },
  manufacturer: { expression: 'product.manufacturer + ", " + product.manufacturerId' },
  manufacturingPlace: { expression: 'item.manufacturedAt' },
  manufacturingDate: { expression: 'item.manufacturedOn' },
  category: { expression: 'product.category' },
  mass: { expression: 'sum(materials.map(m, m.mass))' },
  status: { expression: 'item.status' },
  footprintTotal: { expression: 'sum(footprint.map(f, f.amount))' },
  footprintShares: {
    expression:
      'shares(["raw_materials", "production", "distribution", "end_of_life"]\n' +
      '  .map(s, footprint.filter(f, f.stage == s)[0].amount), 2)',
  },
  footprintRawMaterials: share(0),
  footprintProduction: share(1),
  footprintDistribution: share(2),
  footprintEndOfLife: share(3),
  energyDelivered: {
    expression: 'sheet.certifiedEnergy * count(sheet.annualCycles * sheet.lifetimeYears)',
  },
  footprintPerFunctionalUnit: { expression: 'div(fields.footprintTotal, fields.energyDelivered, 6)' },
  footprintClass: {
    onMissing: 'undetermined',
    reason: 'the delegated act that defines the classes does not apply yet',
  },
  footprintSubject: { expression: 'product.name + ", " + product.manufacturer' },
  diligenceReport: {
    expression: 'diligence.filter(d, d.topic == "report")[0].reference',
    inForceFrom: diligence,
  },
  criticalRawMaterials: { expression: 'distinct(flatten(materials.map(m, m.critical)))' },
  electrodeMaterials: {
    expression: 'materials.filter(m, m.component in ["cathode", "anode", "electrolyte"])',
  },
  hazardousSubstances: {
    expression: 'materials.filter(m, m.hazardous).map(m, m.name + " (CAS " + m.cas + ")")',
  },
  ratedEnergy: { expression: 'kWh(sheet.nominalVoltage * sheet.ratedCapacity)' },
  efficiencyFade: { expression: 'sheet.initialEfficiency - sheet.halfLifeEfficiency' },
  stateOfCharge: measured,
  temperature: measured,
};

function ruleFor({ name, type, point, granularity, article, mandatory, voluntary: free }: Attribute): Rule {
  const asked = mandatory.length > 0 ? mandatory : free;
  return {
    field: name,
    expression: `sheet.${name}`,
    type,
    point,
    granularity,
    categories: asked.length > 0 ? asked : categories,
    inForceFrom: name.startsWith('recycled') ? recycled : passports,
    early: 'publish',
    onMissing: 'fail',
    article: article || 'voluntary',
    ...changes[name],
  };
}

const rules = [...mandatoryFor('ev'), ...attributes.filter(({ name }) => voluntary.includes(name))].map(
  ruleFor,
);

const facts: readonly Fact[] = documents.flatMap(({ name, input }) => {
  const parsed = parseDocument(input);
  if (!parsed.ok) throw new Error(`the sample's ${name} has problems: ${parsed.problems[0]?.message}`);
  return parsed.facts;
});

const quantity = (value: number, scale: number, unit: string): FieldResult => ({
  status: 'value',
  value: { value, scale, unit },
});

const caseWith = (
  name: string,
  change: Partial<RuleTestCase>,
  expect: RuleTestCase['expect'],
): RuleTestCase => ({
  name,
  product,
  item: items[0] ?? null,
  issuedAt: '2027-03-01T00:00:00Z',
  facts: facts.map(({ type, key, payload }) => ({ type, key, payload })),
  ...change,
  expect,
});

const without = (type: string, key?: string): Pick<RuleTestCase, 'facts'> => ({
  facts: facts
    .filter((fact) => fact.type !== type || (key !== undefined && fact.key !== key))
    .map(({ type: kind, key: name, payload }) => ({ type: kind, key: name, payload })),
});

const testCases: readonly RuleTestCase[] = [
  caseWith(
    'the sample battery',
    {},
    {
      mass: quantity(5800, 1, 'kg'),
      ratedEnergy: quantity(99962, 3, 'kWh'),
      footprintTotal: quantity(7300, 0, 'kgCO2e'),
      footprintPerFunctionalUnit: quantity(160088, 6, 'kgCO2e/kWh'),
      footprintRawMaterials: quantity(7712, 2, '%'),
      footprintProduction: quantity(1918, 2, '%'),
      footprintDistribution: quantity(96, 2, '%'),
      footprintEndOfLife: quantity(274, 2, '%'),
      efficiencyFade: quantity(7, 0, '%'),
      hazardousSubstances: { status: 'value', value: ['LiPF6 (CAS 21324-40-3)'] },
      passportId: { status: 'value', value: '01/09506000134352/21/SP100-000001' },
      footprintClass: {
        status: 'undetermined',
        reason: 'the delegated act that defines the classes does not apply yet',
      },
    },
  ),
  caseWith(
    'the model alone has no serial number and no status',
    { item: null },
    {
      batteryId: { status: 'out_of_scope', reason: 'belongs to the individual battery, not to the model' },
      status: { status: 'out_of_scope', reason: 'belongs to the individual battery, not to the model' },
      ratedCapacity: quantity(151, 0, 'Ah'),
    },
  ),
  caseWith('without a carbon footprint nothing is compiled', without('footprint_stage'), {
    footprintTotal: { error: 'FACT_MISSING' },
  }),
  caseWith(
    'recycled content is not asked for before August 2028',
    without('attribute', 'recycledNickelPre'),
    {
      recycledNickelPre: {
        status: 'not_yet_in_force',
        from: recycled,
        article: 'Annex XIII 1(e), Art. 8(1)',
      },
    },
  ),
  caseWith(
    'a light means of transport has no threshold for exhaustion',
    { product: { ...product, category: 'lmt' } },
    { exhaustionThreshold: { status: 'out_of_scope', reason: 'not asked for in category lmt' } },
  ),
];

export const rulePackage: RulePackage = { id: 'eu-2023-1542-ev', version: '1.0.0', rules, testCases };
