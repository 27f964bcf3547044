import type { Category, Json, JsonObject } from '../../compile/index.ts';
import { passportError } from '../../errors.ts';
import { type Disclosed, labelLinkOf } from '../../page/disclosure.ts';
import { AspectFields } from './fields.ts';
import { materials } from './materials.ts';
import { dynamicPerformance, ratedPerformance } from './performance.ts';
import { type Draft, fill, gap } from './supplement.ts';

/*
 * The passport as the Catena-X aspect `urn:samm:io.catenax.battery.battery_pass:6.1.0` (BPC-16). The aspect has no parts that
 * may be left out for a reader: only who sees all access points can make it.
 */

/** Throws VALIDATION_ERROR that names every value which passport and supplement together do not have. */
export function catenaXPass(disclosed: Disclosed, supplement?: JsonObject): JsonObject {
  if (disclosed.points.length < 4)
    throw passportError(
      'VALIDATION_ERROR',
      `the Catena-X aspect needs values of all access points, and ${disclosed.reader} may see only ${disclosed.points.join(', ')}`,
    );
  if (disclosed.ceasedAt !== null)
    throw passportError('PASSPORT_NOT_ACTIVE', 'this passport has ceased: there is nothing to export');
  const { value, problems } = fill(draftOf(disclosed), supplement);
  if (problems.length > 0)
    throw passportError(
      'VALIDATION_ERROR',
      `the Catena-X aspect is not complete; give what is missing in a supplement. ${problems.join('; ')}`,
      { problems },
    );
  return value as JsonObject;
}

const categoryNames: Readonly<Record<Category, string>> = {
  ev: 'EV',
  lmt: 'LMT',
  industrial: 'industrial',
  stationary: 'industrial',
};

function draftOf(disclosed: Disclosed): Draft {
  const fields = new AspectFields(disclosed);
  const { product, version, origin } = disclosed;
  const { receipt } = version;
  const partner = /^BPNL[A-Za-z0-9]{12}$/.test(product.manufacturerId) ? product.manufacturerId : gap;
  return {
    specVersion: 'urn:samm:io.catenax.battery.battery_pass:6.1.0',
    identification: {
      category: categoryNames[product.category],
      idDmc: labelLinkOf(disclosed),
      chemistry: fields.text('chemistry'),
      identification: {
        ...(receipt.serial === null ? {} : { serial: [{ key: 'partInstanceId', value: receipt.serial }] }),
        type: { manufacturerPartId: product.id, nameAtManufacturer: product.name },
        codes: [{ key: 'GTIN', value: product.gtin }],
        dataCarrier: { carrierType: 'QR', carrierLayout: 'ISO/IEC 18004' },
        classification: [
          { classificationStandard: 'Regulation (EU) 2023/1542', classificationID: product.category },
        ],
      },
    },
    operation: { manufacturer: { manufacturer: partner, facility: gap } },
    characteristics: {
      warranty: { lifeValue: fields.number('warrantyPeriod'), lifeUnit: 'unit:month' },
      physicalDimension: { weight: { value: fields.number('mass'), unit: 'unit:kilogram' } },
    },
    sustainability: {
      documents: {
        separateCollection: fields.documents('separateCollection'),
        wastePrevention: fields.documents('wastePrevention'),
      },
      carbonFootprint: footprints(fields),
      status: statusOf(fields.get('status')),
    },
    materials: materials(fields),
    performance: { rated: ratedPerformance(fields), dynamic: dynamicPerformance(fields) },
    conformity: {
      declarationOfConformity: fields.documents('conformityDeclaration'),
      resultOfTestReport: fields.documents('testReports'),
      thirdPartyAssurance: fields.documents('assurances'),
      dueDiligencePolicy: fields.documents('diligenceReport'),
    },
    safety: {
      usableExtinguishAgent: [{ media: fields.text('extinguishingAgent'), fireClass: gap }],
      safetyMeasures: fields.documents('safetyMeasures'),
      meaningOfLabels: fields.documents('labelMeaning'),
      dismantling: fields.documents('dismantlingManuals'),
    },
    metadata: {
      version: receipt.passport_version,
      status:
        disclosed.state === 'ACTIVE' ? 'approved' : disclosed.state === 'REVOKED' ? 'invalid' : 'expired',
      issueDate: receipt.issued_at.slice(0, 10),
      expirationDate: gap,
      economicOperatorId: partner,
      passportIdentifier: `urn:uuid:${receipt.passport_id}`,
      // The aspect takes exactly one, also where there is none: the nil UUID of RFC 9562 then.
      predecessor: `urn:uuid:${disclosed.predecessors[0]?.passportId ?? '00000000-0000-0000-0000-000000000000'}`,
      backupReference: origin,
      registrationIdentifier: `${origin}/v1/dpps/${encodeURIComponent(labelLinkOf(disclosed))}`,
    },
    commercial: { purpose: [product.category] },
    handling: { applicable: true, content: { producer: gap, sparePart: gap } },
  };
}

const footprints = (fields: AspectFields): readonly Draft[] => [
  footprint(fields, 'footprintPerFunctionalUnit', 'kgCO2e/kWh'),
  ...(fields.get('footprintTotal') === undefined ? [] : [footprint(fields, 'footprintTotal', 'kgCO2e')]),
];

const footprint = (fields: AspectFields, name: string, unit: string): Draft => ({
  value: fields.number(name),
  unit,
  lifecycle: 'raw materials, production, distribution, end of life',
  type: 'Climate Change Total',
  rulebook: fields.documents('footprintStudy'),
  declaration: fields.documents('conformityDeclaration'),
  manufacturingPlant: gap,
  ...(fields.get('footprintClass') === undefined ? {} : { performanceClass: fields.text('footprintClass') }),
});

const statusOf = (status: Json | undefined): Draft =>
  status === undefined ? gap : status === 'reused' ? 're-used' : status;
