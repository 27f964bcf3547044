import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ajvDraft04 from 'ajv-draft-04';
import { expect, test } from 'vitest';
import type { JsonObject } from '../../../../src/apps/passports/compile/index.ts';
import { catenaXPass } from '../../../../src/apps/passports/export/catenax/aspect.ts';
import { disclosedSample, individualRecord } from '../page/sample.ts';

const root = new URL('../../../../', import.meta.url);
/** Not a part of this repository: it is looked for beside it. */
const folder = process.env.REFERENCE_DATA ?? fileURLToPath(new URL('../shared/data', root));
const schemaFile = join(folder, 'catenax-battery-pass-6.1.0.schema.json');
const isThere = existsSync(schemaFile);
if (!isThere) console.warn(`the Catena-X export is not validated: ${schemaFile} is not there`);
const supplement = JSON.parse(
  readFileSync(new URL('examples/passports/catenax-supplement.json', root), 'utf8'),
) as JsonObject;
const events = [individualRecord(1, 'stateOfCharge', { value: { value: 437, scale: 1, unit: '%' } })];
const withoutCharge = structuredClone(supplement) as {
  performance: { dynamic: { stateOfCharge?: unknown } };
};
delete withoutCharge.performance.dynamic.stateOfCharge;

test.skipIf(!isThere)(
  'BPC-16: the export is valid by the Catena-X schema and an independent validator',
  () => {
    const ajv = new ajvDraft04.default({ allErrors: true, strict: false });
    const validate = ajv.compile(JSON.parse(readFileSync(schemaFile, 'utf8')));
    const pass = catenaXPass(disclosedSample('owner', { individual: [] }), supplement);
    expect(validate(pass), JSON.stringify(validate.errors, null, 1)).toBe(true);
    expect(validate({ ...pass, metadata: { version: '1' } })).toBe(false);
    const lead = { ...(pass.identification as JsonObject), category: 'ev' };
    expect(validate({ ...pass, identification: lead })).toBe(false);
  },
);

test('BPC-16: the export has the figures of the passport, and the newest individual data', () => {
  const pass = catenaXPass(disclosedSample('owner', { individual: events }), withoutCharge as JsonObject);
  expect(pass).toMatchObject({
    identification: { category: 'EV', idDmc: 'https://passports.example/01/09506000134352/21/SP100-000001' },
    characteristics: { physicalDimension: { weight: { value: 580, unit: 'unit:kilogram' } } },
    sustainability: {
      carbonFootprint: [
        { value: 0.160088, unit: 'kgCO2e/kWh' },
        { value: 7300, unit: 'kgCO2e' },
      ],
      status: 'original',
    },
    materials: { active: { cobalt: { recycled: 13.6, critical: true, location: 'cathode' } } },
    performance: {
      rated: { energy: { value: 99.962 }, temperature: { lower: -30, upper: 60 } },
      dynamic: { stateOfCharge: { value: 43.7, time: '2027-06-01T10:00:00Z' } },
    },
    metadata: { status: 'approved', issueDate: '2027-03-01' },
  });
  const { composition } = pass.materials as { composition: readonly JsonObject[] };
  expect(composition.find(({ id }) => JSON.stringify(id).includes('7782-42-5'))).toMatchObject({
    concentration: 18.103448,
    unit: 'unit:percent',
    location: 'anode',
  });
});

test('BPC-16: what neither passport nor supplement has is named, each with its place; nothing is made up', () => {
  expect(() => catenaXPass(disclosedSample('owner'))).toThrow(
    /\/operation\/manufacturer\/manufacturer: is needed, and the passport does not have it/,
  );
  expect(() => catenaXPass(disclosedSample('owner'))).toThrow(
    /\/materials\/hazardous\/cadmium\/concentration/,
  );
  const { metadata: _, ...rest } = supplement;
  expect(() => catenaXPass(disclosedSample('owner', { individual: [] }), rest)).toThrow(
    /complete; give what is missing in a supplement\. \/metadata\/expirationDate: [^;]*; \/metadata\/economicOperatorId: [^;]*$/,
  );
});

test('BPC-16: a supplement completes what is signed, and cannot replace it', () => {
  const heavier = { ...supplement, characteristics: { physicalDimension: { weight: { value: 600 } } } };
  expect(() => catenaXPass(disclosedSample('owner', { individual: [] }), heavier)).toThrow(
    '/characteristics/physicalDimension/weight/value: the passport says 580',
  );
  const wider = {
    ...supplement,
    characteristics: { physicalDimension: { width: { value: 1.5, unit: 'unit:metre' } } },
  };
  expect(catenaXPass(disclosedSample('owner', { individual: [] }), wider)).toMatchObject({
    characteristics: { physicalDimension: { weight: { value: 580 }, width: { value: 1.5 } } },
  });
});

test.each(['public', 'legitimate_interest', 'authority'] as const)(
  'BPC-12: %s gets no Catena-X export, which has parts of all access points',
  (reader) => {
    expect(() => catenaXPass(disclosedSample(reader), supplement)).toThrow(
      'needs values of all access points',
    );
  },
);

test('BPC-16: a revoked version says that it is invalid, a ceased passport gives none', () => {
  const none = { individual: [] };
  expect(catenaXPass(disclosedSample('owner', { ...none, state: 'REVOKED' }), supplement)).toMatchObject({
    metadata: { status: 'invalid' },
  });
  expect(() =>
    catenaXPass(disclosedSample('owner', { ...none, ceasedAt: '2039-05-01T00:00:00Z' }), supplement),
  ).toThrow('has ceased');
});
