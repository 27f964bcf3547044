import { attributeNamed, attributes } from '../attributes.ts';
import { factSchemaVersion } from '../facts.ts';
import type { DocumentKind, Fact, JsonObject, QuantityJson } from '../types.ts';
import { unitNamed } from '../units.ts';
import type { Cells } from './cells.ts';
import type { Problems } from './problems.ts';
import type { Column } from './table.ts';

/** What one kind of document looks like, and how a row of it becomes a fact. */
export interface KindOfDocument {
  readonly columns: readonly Column[];
  /** The column that a source names: the one with the value. */
  readonly valueColumn: string;
  /** The column in which a key that is there twice is reported. */
  readonly keyColumn: string;
  readonly fact: (cells: Cells) => Omit<Fact, 'sources'> | undefined;
  /** What can be said only of all rows. */
  readonly whole?: (facts: readonly Omit<Fact, 'sources'>[], problems: Problems) => void;
}

export const components = ['cathode', 'anode', 'electrolyte', 'separator', 'housing', 'other'];
export const footprintStages = ['raw_materials', 'production', 'distribution', 'end_of_life'];

/** For people: it does not go into the fact. */
const note: Column = { name: 'note', optional: true };

const json = (quantity: QuantityJson): JsonObject => ({ ...quantity });

const fact = (type: Fact['type'], key: string, payload: JsonObject): Omit<Fact, 'sources'> => ({
  type,
  key,
  schemaVersion: factSchemaVersion,
  payload,
});

const billOfMaterials: KindOfDocument = {
  columns: [
    { name: 'component' },
    { name: 'material' },
    { name: 'cas', optional: true },
    { name: 'mass' },
    { name: 'unit' },
    { name: 'critical', optional: true },
    { name: 'hazardous', optional: true },
    note,
  ],
  valueColumn: 'mass',
  keyColumn: 'material',
  fact: (cells) => {
    const component = cells.oneOf('component', components);
    const name = cells.text('material');
    const cas = cells.cas('cas');
    const mass = cells.decimal('mass', 'unit', 'Kg', { least: 0n });
    const hazardous = cells.flag('hazardous');
    const critical = cells
      .optional('critical')
      .split(';')
      .map((each) => each.trim())
      .filter((each) => each !== '');
    if (component === undefined || name === undefined || cas === undefined) return undefined;
    if (mass === undefined || hazardous === undefined) return undefined;
    const payload = { component, name, cas, mass: json(mass), critical, hazardous };
    return fact('material', `${component}/${name}`, payload);
  },
};

const carbonFootprint: KindOfDocument = {
  columns: [{ name: 'stage' }, { name: 'amount' }, { name: 'unit' }, note],
  valueColumn: 'amount',
  keyColumn: 'stage',
  fact: (cells) => {
    const stage = cells.oneOf('stage', footprintStages);
    const amount = cells.decimal('amount', 'unit', 'KgCO2e', { least: 0n });
    if (stage === undefined || amount === undefined) return undefined;
    return fact('footprint_stage', stage, { stage, amount: json(amount) });
  },
  whole: (facts, problems) => {
    for (const stage of footprintStages)
      if (!facts.some(({ key }) => key === stage))
        problems.add(
          'MISSING_VALUE',
          null,
          'stage',
          `there is no row for the stage ${stage}; shares need all four`,
        );
  },
};

const dueDiligence: KindOfDocument = {
  columns: [
    { name: 'topic' },
    { name: 'material', optional: true },
    { name: 'statement' },
    { name: 'reference', optional: true },
    note,
  ],
  valueColumn: 'statement',
  keyColumn: 'topic',
  fact: (cells) => {
    const [topic, statement] = [cells.text('topic'), cells.text('statement')];
    const [material, reference] = [cells.optional('material'), cells.optional('reference')];
    if (reference !== '' && !/^https:\/\/[^\s"<>]+$/.test(reference))
      return cells.wrong('reference', 'INVALID_VALUE', `"${reference}" is no link that begins with https://`);
    if (topic === undefined || statement === undefined) return undefined;
    const key = material === '' ? topic : `${topic}/${material}`;
    return fact('diligence', key, { topic, material, statement, reference });
  },
};

const dataSheet: KindOfDocument = {
  columns: [{ name: 'attribute' }, { name: 'value' }, { name: 'unit', optional: true }, note],
  valueColumn: 'value',
  keyColumn: 'attribute',
  fact: (cells) => {
    const name = cells.text('attribute');
    if (name === undefined) return undefined;
    const attribute = attributeNamed(name);
    if (!attribute)
      return cells.wrong('attribute', 'INVALID_VALUE', `there is no attribute "${name}"${nearest(name)}`);
    const value = attributeValue(cells, attribute.type);
    return value === undefined ? undefined : fact('attribute', name, { value });
  },
};

function attributeValue(cells: Cells, type: string): JsonObject[string] | undefined {
  if (unitNamed(type)) {
    const value = cells.decimal('value', 'unit', type);
    return value && json(value);
  }
  const unit = cells.optional('unit');
  if (unit !== '')
    return cells.wrong('unit', 'WRONG_UNIT', `the unit is "${unit}", and this attribute has none`);
  if (type === 'int') return cells.integer('value');
  if (type === 'string') return cells.text('value');
  return cells.wrong('attribute', 'INVALID_VALUE', 'this attribute is computed from the bill of materials');
}

function nearest(name: string): string {
  const near = attributes.find(
    (each) => each.name.toLowerCase() === name.toLowerCase().replaceAll(/[\s_-]/g, ''),
  );
  return near ? `; did you mean ${near.name}?` : '';
}

export const kinds: Readonly<Record<DocumentKind, KindOfDocument>> = {
  bill_of_materials: billOfMaterials,
  carbon_footprint: carbonFootprint,
  due_diligence: dueDiligence,
  data_sheet: dataSheet,
};
