import { expect, test } from 'vitest';
import { product } from '../../../../src/apps/passports/compile/sample/index.ts';
import { link, linkId, publicServer } from '../public/support.ts';

const host = 'https://passports.example';
const modelId = encodeURIComponent(`${host}/01/${product.gtin}`);

test('BPC-16: EN 18222: a passport by id, by product id, and one element of it', async () => {
  const { ask, caller, passport } = await publicServer();
  const { id } = await passport('SP100-000001');
  const read = await ask('GET', `/v1/dpps/${linkId}`);
  expect(read).toMatchObject({
    status: 200,
    body: {
      digitalProductPassportId: `${host}${link}`,
      uniqueProductIdentifier: `${host}${link}`,
      granularity: 'Item',
      dppSchemaVersion: 'EN 18223:2026',
      dppStatus: 'Active',
      lastUpdate: '2027-02-18T00:00:00Z',
      economicOperatorId: product.manufacturerId,
      contentSpecificationIds: ['eu-2023-1542-ev:1.0.0'],
      performance: { ratedEnergy: 99.962, ratedCapacity: 151, idleTemperatureMin: -30 },
      footprint: { footprintPerFunctionalUnit: 0.160088 },
    },
  });
  for (const same of [`/v1/dpps/${id}`, `/v1/dpps/urn:uuid:${id}`, `/v1/dppsByProductId/${linkId}`])
    expect((await ask('GET', same)).body).toEqual(read.body);
  const full = (await ask('GET', `/v1/dpps/${linkId}?representation=full`)).body;
  const elements = full.elements.flatMap((each: { elements: readonly object[] }) => each.elements);
  expect(elements).toContainEqual({
    elementId: 'ratedEnergy',
    accessPoint: 1,
    objectType: 'SingleValuedDataElement',
    valueDataType: 'xsd:decimal',
    value: 99.962,
    unit: 'kWh',
  });
  expect(elements).toContainEqual(
    expect.objectContaining({ elementId: 'footprintClass', value: null, status: 'undetermined' }),
  );
  expect((await ask('GET', `/v1/dppsByProductId/${modelId}`)).body).toMatchObject({ granularity: 'Model' });

  const element = (path: string, by = ask) =>
    by('GET', `/v1/dpps/${linkId}/elements/${encodeURIComponent(path)}`);
  for (const path of [
    '$.performance.ratedEnergy',
    "$['performance']['ratedEnergy']",
    'performance/ratedEnergy',
  ])
    expect((await element(path)).body).toBe(99.962);
  expect((await ask('GET', `/v1/dpps/${linkId}/elements/performance/ratedEnergy`)).body).toBe(99.962);
  expect((await element('$.materials.criticalRawMaterials[-1]')).body).toBe('aluminium');
  expect(await element('$.materials.electrodeMaterials')).toMatchObject({
    status: 403,
    body: {
      statusCode: 'ClientForbidden',
      message: [
        { messageType: 'Error', text: '$.materials.electrodeMaterials is withheld: Annex XIII, point 2' },
      ],
    },
  });
  expect((await element('$.materials.electrodeMaterials[0].mass', await caller('guest'))).body).toBe(3);
  expect((await element('$.conformity.testReports', await caller('guest'))).status).toBe(403);
  expect((await element('$.conformity.testReports', await caller('authority'))).status).toBe(200);
  for (const path of ['$..ratedEnergy', '$.performance[*]', '$', '$.performance[?(@.x)]'])
    expect(await element(path)).toMatchObject({ status: 400, body: { statusCode: 'ClientErrorBadRequest' } });
  for (const path of [
    '$.performance.nothing',
    '$.__proto__.x',
    '$.constructor',
    '$.performance.ratedEnergy.length',
  ])
    expect(await element(path)).toMatchObject({
      status: 404,
      body: { statusCode: 'ClientErrorResourceNotFound' },
    });
});

test('BPC-16: EN 18222: the version that counted at a date, and what is wrong in the form of the standard', async () => {
  const { ask, rows, passport } = await publicServer();
  const { id } = await passport('SP100-000001');
  const [{ at }] = (await rows<{ at: Date }>(
    'select active_at as at from passports.versions where passport_id = $1',
    [id],
  )) as [{ at: Date }];
  const byDate = (date: string) =>
    ask('GET', `/v1/dppsByIdAndDate/${linkId}?date=${encodeURIComponent(date)}`);
  expect(await byDate(new Date(at.getTime() + 1).toISOString())).toMatchObject({
    status: 200,
    body: { dppStatus: 'Active' },
  });
  expect(await byDate(new Date(at.getTime() - 1000).toISOString())).toMatchObject({
    status: 404,
    body: { statusCode: 'ClientErrorResourceNotFound', message: [{ messageType: 'Error' }] },
  });
  const wrong = await byDate('yesterday');
  expect(wrong).toMatchObject({ status: 400, body: { statusCode: 'ClientErrorBadRequest' } });
  expect(wrong.body.message[0].correlationId).toBe(wrong.headers.get('x-correlation-id'));
  for (const unknown of [
    'x',
    '00000000-0000-4000-8000-000000000000',
    encodeURIComponent('https://x/01/09506000134352/21/N'),
  ])
    expect((await ask('GET', `/v1/dpps/${unknown}`)).body.statusCode).toBe('ClientErrorResourceNotFound');
});

test('BPC-16: EN 18222: ids by product ids, in their order and page by page', async () => {
  const { ask } = await publicServer(2);
  const of = (serial: string) => `${host}/01/${product.gtin}/21/${serial}`;
  const ids = [of('SP100-000002'), of('NONE'), of('SP100-000001'), `${host}/01/${product.gtin}`];
  const all = await ask('POST', '/v1/dppsByProductIds', ids);
  expect(all).toMatchObject({
    status: 200,
    body: { dppIds: [ids[0], ids[2], ids[3]], nextCursor: null },
  });
  const first = await ask('POST', '/v1/dppsByProductIds?limit=2', { productIds: ids });
  expect(first.body).toEqual({ dppIds: [ids[0]], nextCursor: '2' });
  const second = await ask('POST', `/v1/dppsByProductIds?limit=2&cursor=${first.body.nextCursor}`, ids);
  expect(second.body).toEqual({ dppIds: [ids[2], ids[3]], nextCursor: null });
  expect((await ask('POST', '/v1/dppsByProductIds', ['no link'])).body).toMatchObject({
    statusCode: 'ClientErrorBadRequest',
    message: [{ text: '"no link" (number 1) is no GS1 Digital Link of a product' }],
  });
  expect((await ask('POST', '/v1/dppsByProductIds', { productIds: 7 })).status).toBe(400);
  expect(
    (
      await ask(
        'POST',
        '/v1/dppsByProductIds',
        Array.from({ length: 1001 }, () => ids[0]),
      )
    ).status,
  ).toBe(400);
});

test('BPC-16, SEC-5: EN 18222: what everybody may see is made once; what others may see is not kept', async () => {
  const { ask, caller, tallyman } = await publicServer();
  const guest = await caller('guest');
  const withheld = `/v1/dpps/${linkId}/elements/materials/electrodeMaterials`;
  const paths = [
    `/v1/dpps/${linkId}`,
    `/v1/dpps/${linkId}?representation=full`,
    `/v1/dpps/${linkId}/elements/performance/ratedEnergy`,
    `/v1/dpps/${linkId}/elements/performance/nothing`,
    withheld,
  ];
  const read = async () => {
    const answers = [];
    for (const path of paths) {
      const { status, body } = await ask('GET', path);
      answers.push({ status, body: status === 200 ? body : body.statusCode });
    }
    return answers;
  };
  expect((await guest('GET', withheld)).status).toBe(200);
  const before = await read();
  expect(before.map(({ status }) => status)).toEqual([200, 200, 200, 404, 403]);
  // What an answer is made of is not there any more.
  await tallyman.database.transaction(async (tx) => {
    await tx.query('set local session_replication_role = replica');
    await tx.query('delete from passports.artefacts');
  });
  expect(await read()).toEqual(before);
  expect((await guest('GET', withheld)).status).toBe(404);
});
