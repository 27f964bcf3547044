import { attributeNamed } from '../compile/attributes.ts';
import type { Json, JsonObject } from '../compile/index.ts';
import { plainValue, unitOf } from '../export/plain.ts';
import { type Disclosed, type DisclosedField, disclosedFields, labelLinkOf } from '../page/disclosure.ts';

/*
 * The passport as a document of EN 18223, as the reads of EN 18222 answer it: a header, and one collection of data elements
 * for each group of attributes. `compressed` has the values by name; `full` has each element with type and unit.
 */

export const representations = ['compressed', 'full'] as const;
export type Representation = (typeof representations)[number];

/** The id of the passport, for all its versions: the digital link that is on its label. */
export const dppId = labelLinkOf;

export function dppDocument(disclosed: Disclosed, representation: Representation): JsonObject {
  const groups = [...groupsOf(disclosed)];
  return {
    ...header(disclosed),
    ...(representation === 'full'
      ? { elements: groups.map(([group, fields]) => collection(group, fields)) }
      : Object.fromEntries(groups.map(([group, fields]) => [group, compressed(fields)]))),
  };
}

function header(disclosed: Disclosed): JsonObject {
  const { product, version, ceasedAt, endedAt } = disclosed;
  const { receipt } = version;
  return {
    digitalProductPassportId: dppId(disclosed),
    uniqueProductIdentifier: labelLinkOf(disclosed),
    granularity: receipt.serial === null ? 'Model' : 'Item',
    dppSchemaVersion: 'EN 18223:2026',
    dppStatus: statusOf(disclosed),
    lastUpdate: ceasedAt ?? endedAt ?? receipt.issued_at,
    economicOperatorId: product.manufacturerId,
    contentSpecificationIds: [`${receipt.inputs.rules.id}:${receipt.inputs.rules.version}`],
    // Beyond the standard: which version this is, and what to check it with.
    passportVersion: receipt.passport_version,
    receiptHash: version.receiptHash,
  };
}

function statusOf({ ceasedAt, state }: Disclosed): string {
  if (ceasedAt !== null) return 'Archived';
  return { SIGNED: 'Inactive', ACTIVE: 'Active', SUPERSEDED: 'Inactive', REVOKED: 'Invalid' }[state];
}

/** A ceased passport has none. */
function groupsOf(disclosed: Disclosed): ReadonlyMap<string, readonly DisclosedField[]> {
  const fields = disclosed.ceasedAt === null ? [...disclosedFields(disclosed).values()] : [];
  return Map.groupBy(fields, ({ name }) => attributeNamed(name)?.group ?? 'other');
}

/** Fields without a value are left out; `full` says why they have none. */
const compressed = (fields: readonly DisclosedField[]): JsonObject =>
  Object.fromEntries(
    fields.flatMap(({ name, result }) =>
      result.status === 'value' ? [[name, plainValue(result.value)] as const] : [],
    ),
  );

const collection = (group: string, fields: readonly DisclosedField[]): JsonObject => ({
  elementId: group,
  objectType: 'DataElementCollection',
  elements: fields.map(element),
});

function element({ name, result, point }: DisclosedField): JsonObject {
  const about = { elementId: name, accessPoint: point };
  if (result.status !== 'value')
    return { ...about, objectType: 'SingleValuedDataElement', value: null, ...(result as JsonObject) };
  const value = plainValue(result.value);
  const unit = unitOf(result.value);
  return {
    ...about,
    objectType: Array.isArray(value) ? 'MultiValuedDataElement' : 'SingleValuedDataElement',
    valueDataType: dataTypeOf(value),
    value,
    ...(unit === undefined ? {} : { unit }),
  };
}

function dataTypeOf(value: Json): string {
  const first = Array.isArray(value) ? (value[0] ?? '') : value;
  if (typeof first === 'boolean') return 'xsd:boolean';
  if (typeof first === 'number') return Number.isInteger(first) ? 'xsd:integer' : 'xsd:decimal';
  if (typeof first === 'string') return /^https?:\/\//.test(first) ? 'xsd:anyURI' : 'xsd:string';
  return 'rdf:JSON';
}
