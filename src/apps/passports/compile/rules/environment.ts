import { Environment } from '@marcbachmann/cel-js';
import { attributes } from '../attributes.ts';
import { quantityClass } from '../quantity.ts';
import { units } from '../units.ts';
import { functionSignatures, operatorSignatures } from './functions.ts';
import { recordClasses, recordTypes } from './values.ts';

/*
 * The language of rules, as the CEL library sees it: its types, variables and functions. It parses and checks with it; the
 * values of a passport come from our own evaluator (evaluate.ts), which keeps the derivation.
 */

/** Parts that an expression reads by name only: `sheet.mass`. They are no values that could be passed on. */
export const namespaces = ['sheet', 'product', 'item', 'fields'] as const;
export type Namespace = (typeof namespaces)[number];

export const lists = {
  materials: 'Material',
  footprint: 'FootprintStage',
  diligence: 'Diligence',
} as const;
export type ListVariable = keyof typeof lists;

export const productColumns = {
  id: 'string',
  name: 'string',
  category: 'string',
  gtin: 'string',
  manufacturer: 'string',
  manufacturerId: 'string',
} as const;

export const itemColumns = {
  serial: 'string',
  manufacturedOn: 'string',
  manufacturedAt: 'string',
  status: 'string',
} as const;

/** What a data sheet can say: attributes with one value. Lists come from other documents. */
export const sheetColumns: Readonly<Record<string, string>> = Object.fromEntries(
  attributes.filter(({ type }) => !type.startsWith('list<')).map(({ name, type }) => [name, type]),
);

export class SheetNamespace {}
export class ProductNamespace {}
export class ItemNamespace {}
export class FieldsNamespace {}

const limits = {
  maxAstNodes: 2000,
  maxDepth: 60,
  maxListElements: 200,
  maxMapEntries: 1,
  maxCallArguments: 8,
};

let shared: Environment | undefined;

/** Built once: it has some thousand signatures. */
function base(): Environment {
  if (shared) return shared;
  const environment = new Environment({ limits });
  for (const { type } of units) environment.registerType(type, quantityClass(type));
  for (const [type, fields] of Object.entries(recordTypes))
    environment.registerType(type, { ctor: recordClasses[type as keyof typeof recordTypes], fields });
  for (const { signature, run } of operatorSignatures()) environment.registerOperator(signature, run);
  for (const { signature, run } of functionSignatures())
    environment.registerFunction(signature, run, { async: false });
  for (const [name, type] of Object.entries(lists)) environment.registerVariable(name, `list<${type}>`);
  environment
    .registerType('DataSheet', { ctor: SheetNamespace, fields: { ...sheetColumns } })
    .registerVariable('sheet', 'DataSheet')
    .registerType('ProductData', { ctor: ProductNamespace, fields: { ...productColumns } })
    .registerVariable('product', 'ProductData')
    .registerType('ItemData', { ctor: ItemNamespace, fields: { ...itemColumns } })
    .registerVariable('item', 'ItemData');
  shared = environment;
  return environment;
}

/** The language for one package: `fields` has its rules, with the types that they say. */
export function environmentFor(fieldTypes: Readonly<Record<string, string>>): Environment {
  return base()
    .clone()
    .registerType('FieldValues', { ctor: FieldsNamespace, fields: { ...fieldTypes } })
    .registerVariable('fields', 'FieldValues');
}
