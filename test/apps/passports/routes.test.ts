import { expect, test } from 'vitest';
import { documents, product, rulePackage } from '../../../src/apps/passports/compile/sample/index.ts';
import { activeSample, csv, documentUrl, made, passportServer, productUrl, putModel } from './api.ts';

const missing = '00000000-0000-4000-8000-000000000000';

test('BPC-2, BPC-5, BPC-11: over HTTP, from documents to active passports, and what can be looked at on the way', {
  timeout: 240_000,
}, async () => {
  const test = await passportServer();
  const ask = await test.as('operator');
  const { rulesId, passportId, versionId } = await activeSample(test, ask);

  expect(await made(ask('GET', productUrl))).toMatchObject({ id: product.id, gtin: product.gtin });
  expect((await made(ask('GET', '/v1/passports/products'))).items).toHaveLength(1);
  const uploaded = await made(ask('GET', `/v1/passports/documents?product=${product.id}&state=VALIDATED`));
  expect(uploaded.items).toHaveLength(documents.length);
  const [first] = uploaded.items;
  expect(await made(ask('GET', `/v1/passports/documents/${first.id}`))).toEqual(first);
  const content = await ask('GET', `/v1/passports/documents/${first.id}/content`);
  expect(content.headers.get('content-type')).toContain('text/csv');
  const original = documents.find(({ name }) => name === first.name)?.input.bytes;
  expect(content.body).toBe(Buffer.from(original ?? []).toString('utf8'));
  const again = await ask('POST', documentUrl(first.name, first.kind), content.body, csv);
  expect(again).toMatchObject({ status: 202, body: { existing: true, version_id: first.id } });
  expect((await made(ask('GET', `/v1/passports/facts?document=${first.id}&limit=200`))).items).toHaveLength(
    first.fact_count,
  );

  const { items: snapshots } = await made(ask('GET', `/v1/passports/snapshots?product=${product.id}`));
  expect(snapshots).toMatchObject([{ state: 'SEALED' }]);
  const snapshot = await made(ask('GET', `/v1/passports/snapshots/${snapshots[0].id}`));
  expect(snapshot.documents).toHaveLength(documents.length);
  const ofSnapshot = await made(ask('GET', `/v1/passports/facts?snapshot=${snapshot.id}&limit=200`));
  expect(ofSnapshot.items).toHaveLength(snapshot.fact_count);

  expect(await made(ask('GET', `${productUrl}/progress`))).toEqual({
    documents: { VALIDATED: documents.length },
    snapshot: { snapshot_id: snapshots[0].id, state: 'SEALED', error: null },
    model: { version_id: expect.any(String), state: 'ACTIVE', error: null },
    batteries: 3,
    versions: { ACTIVE: 3 },
  });
  const version = await made(ask('GET', `/v1/passports/versions/${versionId}`));
  expect(version).toMatchObject({ state: 'ACTIVE', serial: 'SP100-000002', rules_id: rulesId, number: 1 });
  expect(version).not.toHaveProperty('salt');
  expect((await made(ask('GET', '/v1/passports/versions?state=ACTIVE'))).items).toHaveLength(4);
  expect(await made(ask('POST', `/v1/passports/versions/${versionId}/replay`))).toMatchObject({
    receipt_hash: version.receipt_hash,
  });
  const code = await ask('GET', `/v1/passports/versions/${versionId}/code`);
  expect([code.status, code.headers.get('content-type')]).toEqual([200, 'image/png']);

  // A change of the battery itself: status, then a version that says so and supersedes the first.
  await made(ask('POST', `/v1/passports/items/${passportId}/status`, { status: 'repurposed' }));
  const request = { rules: rulePackage.id, issued_at: '2027-03-01T00:00:00Z' };
  const { version_id: second } = await made(
    ask('POST', `/v1/passports/items/${passportId}/versions`, request),
  );
  await test.settle();
  const { items: versions } = await made(ask('GET', `/v1/passports/versions?passport=${passportId}`));
  const states = versions.map(({ id, state }: { id: string; state: string }) => [id, state]);
  expect(Object.fromEntries(states)).toEqual({ [second]: 'ACTIVE', [versionId]: 'SUPERSEDED' });
  const revoked = await made(
    ask('POST', `/v1/passports/versions/${second}/revoke`, { reason: 'wrong status' }),
  );
  expect(revoked).toMatchObject({ state: 'REVOKED', reason: 'wrong status' });

  // Individual data, predecessors, and the end.
  const event = {
    type: 'state_of_health',
    occurred_at: '2028-01-01T00:00:00Z',
    data: { percent: 97 },
    key: 'e1',
  };
  expect(await made(ask('POST', `/v1/passports/items/${passportId}/events`, event))).toEqual({ seq: 1 });
  expect(await made(ask('POST', `/v1/passports/items/${passportId}/events`, event))).toEqual({ seq: 1 });
  await made(ask('POST', `/v1/passports/items/${passportId}/events`, { ...event, key: 'e2' }));
  const page = await made(ask('GET', `/v1/passports/items/${passportId}/events?limit=1`));
  expect(page).toMatchObject({ items: [{ seq: 2 }], next_cursor: '2' });
  expect(await made(ask('GET', `/v1/passports/items/${passportId}/events?limit=1&cursor=2`))).toMatchObject({
    items: [{ seq: 1, data: { percent: 97 } }],
    next_cursor: null,
  });
  const { items: others } = await made(ask('GET', '/v1/passports?serial=SP100-000003'));
  await made(ask('POST', `/v1/passports/items/${passportId}/predecessors`, { predecessors: [others[0].id] }));
  expect(await made(ask('GET', `/v1/passports/${passportId}`))).toMatchObject({
    status: 'repurposed',
    predecessors: [{ serial: 'SP100-000003' }],
    successors: [],
  });
  expect(
    await made(ask('POST', `/v1/passports/items/${passportId}/cease`, { reason: 'recycled' })),
  ).toMatchObject({
    status: 'waste',
    ceased_reason: 'recycled',
    ceased_at: expect.any(String),
  });
  expect(await ask('POST', `/v1/passports/items/${passportId}/versions`, request)).toMatchObject({
    status: 409,
    body: { error: { code: 'PASSPORT_CEASED', message: expect.stringContaining('has ceased') } },
  });
});

test('BPC-6: rules over HTTP: checked with rule and position, tested, not published while a case fails', {
  timeout: 120_000,
}, async () => {
  const test = await passportServer();
  const ask = await test.as('operator');
  const [rule, ...rules] = rulePackage.rules;
  const broken = { ...rulePackage, rules: [{ ...rule, expression: 'Kg("1") + kWh(1)' }, ...rules] };
  const checked = await made(ask('POST', '/v1/passports/rules/check', { package: broken }));
  expect(checked).toMatchObject({ ok: false, problems: [{ rule: rule?.field, position: { line: 1 } }] });
  expect((await made(ask('POST', '/v1/passports/rules/check', { package: rulePackage }))).ok).toBe(true);
  expect(await ask('POST', '/v1/passports/rules', { package: { id: 'x' } })).toMatchObject({
    status: 400,
    body: { error: { code: 'VALIDATION_ERROR', message: expect.stringMatching(/^body\.package/) } },
  });

  const [testCase, ...cases] = rulePackage.testCases;
  const vacuous = {
    ...rulePackage,
    version: '98.0.0',
    testCases: [...cases, { ...testCase, name: 'all is well', expect: {} }],
  };
  const sentence = /test case "all is well" expects nothing, .* name at least one field/;
  expect(await made(ask('POST', '/v1/passports/rules/check', { package: vacuous }))).toMatchObject({
    ok: false,
    problems: [{ code: 'VALIDATION_ERROR', message: expect.stringMatching(sentence) }],
    outcomes: [],
  });
  const stored = await made(ask('POST', '/v1/passports/rules', { package: vacuous }));
  for (const verb of ['test', 'publish'])
    expect(await ask('POST', `/v1/passports/rules/${stored.id}/${verb}`)).toMatchObject({
      status: 400,
      body: { error: { code: 'VALIDATION_ERROR', message: expect.stringMatching(sentence) } },
    });
  expect((await made(ask('GET', `/v1/passports/rules/${stored.id}`))).state).toBe('DRAFT');
  const untested = { ...rulePackage, version: '97.0.0', testCases: [] };
  expect((await made(ask('POST', '/v1/passports/rules/check', { package: untested }))).ok).toBe(false);
  const expected = { ...testCase?.expect, [rule?.field ?? '']: { status: 'value', value: 'something else' } };
  const failing = { ...rulePackage, testCases: [{ ...testCase, expect: expected }, ...cases] };
  const draft = await made(ask('POST', '/v1/passports/rules', { package: failing }));
  expect(draft.state).toBe('DRAFT');
  const refused = await ask('POST', `/v1/passports/rules/${draft.id}/publish`);
  expect(refused).toMatchObject({ status: 409, body: { error: { code: 'RULE_TESTS_FAILED' } } });
  expect((await made(ask('GET', `/v1/passports/rules/${draft.id}`))).state).toBe('DRAFT');
  const report = await made(ask('POST', `/v1/passports/rules/${draft.id}/test`));
  expect(report).toMatchObject({
    passed: false,
    outcomes: expect.arrayContaining([expect.objectContaining({ passed: false })]),
  });
  expect((await ask('POST', `/v1/passports/rules/${draft.id}/publish`)).status).toBe(409);

  const next = { ...rulePackage, version: '99.0.0' };
  const { id } = await made(ask('POST', '/v1/passports/rules', { package: next }));
  for (const [verb, state] of [
    ['publish', 'PUBLISHED'],
    ['deprecate', 'DEPRECATED'],
    ['retire', 'RETIRED'],
  ])
    expect((await made(ask('POST', `/v1/passports/rules/${id}/${verb}`))).state).toBe(state);
  expect((await ask('POST', `/v1/passports/rules/${id}/publish`)).status).toBe(409);
  expect((await made(ask('GET', '/v1/passports/rules'))).items).toHaveLength(3);
});

test('BPC-13: what is not there, not ready or in conflict is said with its code', {
  timeout: 120_000,
}, async () => {
  const test = await passportServer();
  const ask = await test.as('operator');
  await putModel(ask);
  for (const path of ['documents', 'snapshots', 'rules', 'versions'])
    expect((await ask('GET', `/v1/passports/${path}/${missing}`)).status).toBe(404);
  expect((await ask('GET', `/v1/passports/${missing}`)).status).toBe(404);
  expect((await ask('GET', '/v1/passports/products/nothing')).status).toBe(404);
  const { id: _, manufacturerId: manufacturer_id, ...rest } = product;
  expect(await ask('PUT', '/v1/passports/products/other', { ...rest, manufacturer_id })).toMatchObject({
    status: 409,
    body: { error: { code: 'CONFLICT', message: expect.stringContaining('GTIN') } },
  });
  expect(
    await ask('PUT', '/v1/passports/products/other', { ...rest, manufacturer_id, gtin: '09506000134351' }),
  ).toMatchObject({ status: 400, body: { error: { message: expect.stringContaining('check digit') } } });
  const { id: rules } = await made(ask('POST', '/v1/passports/rules', { package: rulePackage }));
  expect(await ask('POST', `${productUrl}/versions`, { rules })).toMatchObject({
    status: 409,
    body: { error: { code: 'SNAPSHOT_NOT_READY' } },
  });
  await made(ask('POST', `${productUrl}/snapshots`));
  await test.settle();
  expect(await ask('POST', `${productUrl}/versions`, { rules })).toMatchObject({
    status: 409,
    body: { error: { code: 'RULE_PKG_NOT_PUBLISHED' } },
  });
});

test('BPC-9: without a signing key nothing is issued in production', { timeout: 120_000 }, async () => {
  process.env.NODE_ENV = 'production';
  try {
    const test = await passportServer({
      'passports.signingKey': null,
      'passports.signingKeyId': null,
    } as never);
    const ask = await test.as('operator');
    await putModel(ask);
    const { id: rules } = await made(ask('POST', '/v1/passports/rules', { package: rulePackage }));
    expect(await ask('POST', `${productUrl}/versions`, { rules })).toMatchObject({
      status: 503,
      body: { error: { code: 'SIGNING_KEY_MISSING' } },
    });
  } finally {
    process.env.NODE_ENV = 'test';
  }
});
