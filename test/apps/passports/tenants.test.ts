import { expect, test } from 'vitest';
import { passportsApp } from '../../../src/apps/passports/app.ts';
import { rulePackage } from '../../../src/apps/passports/compile/sample/index.ts';
import { activeSample, made, passportServer, putSample } from './api.ts';

test('ENG-21: ids of another tenant, of everything that is compiled and signed, at every route: 404, and nothing changes', {
  timeout: 240_000,
}, async () => {
  const test = await passportServer();
  const b = await test.as('admin', 'b');
  const { rulesId, passportId, versionId } = await activeSample(test, b);
  const { items: documents } = await made(b('GET', '/v1/passports/documents?limit=1'));
  const { items: snapshots } = await made(b('GET', '/v1/passports/snapshots'));
  const { id: exported } = await made(b('POST', `/v1/passports/versions/${versionId}/exports`, {}));
  await test.settle();
  const idOf: Record<string, string> = {
    '/v1/passports': passportId,
    '/v1/passports/items': passportId,
    '/v1/passports/versions': versionId,
    '/v1/passports/rules': rulesId,
    '/v1/passports/documents': documents[0].id,
    '/v1/passports/snapshots': snapshots[0].id,
    '/v1/passports/exports': exported,
  };
  // A model of the same name is a model of a's own.
  const a = await test.as('admin', 'a');
  const own = await putSample(a);
  const guest = await test.as('guest', 'a', 'passports.authority');
  const everything = () =>
    test
      .rows<{ name: string }>(
        `select name from tallyman.isolated_tables where name like 'passports.%' order by 1`,
      )
      .then((tables) =>
        Promise.all(
          tables.map(({ name }) =>
            test.rows(`select to_jsonb(t) as row from ${name} t where tenant_id = 'b' order by 1`),
          ),
        ),
      );
  const before = await everything();
  const bodies: Record<string, unknown> = {
    'passports.status': { status: 'waste' },
    'passports.predecessors': { predecessors: [passportId] },
    'passports.cease': { reason: 'mine' },
    'passport_events.append': { type: 'cycles', occurred_at: '2027-01-01T00:00:00Z', data: {} },
    'passport_versions.issue_item': { rules: own },
    'passport_versions.issue_items': { rules: own },
    'passport_versions.revoke': { reason: 'mine' },
    'passport_exports.request': {},
  };
  let asked = 0;
  for (const { method, url, action, roles } of (await passportsApp.routes?.(test.host)) ?? []) {
    const id = idOf[url.slice(0, url.indexOf('/:'))];
    if (id === undefined) continue;
    for (const ask of roles.includes('guest') ? [a, guest] : [a]) {
      const { status, body } = await ask(method, url.replace(/:\w+/, id), bodies[action]);
      expect({ action, status, code: body.error?.code }).toMatchObject({
        action,
        code: expect.stringMatching(/NOT_FOUND|FORBIDDEN/),
      });
      expect(status === 404 || (ask === guest && action === 'passport_events.list')).toBe(true);
      asked += 1;
    }
  }
  expect(asked).toBeGreaterThan(20);
  // In a body: rules, snapshots and batteries of b for what is a's own.
  const { items } = await made(a('GET', '/v1/passports?serial=SP100-000001'));
  const mine = `/v1/passports/items/${items[0].id}`;
  const product = '/v1/passports/products/pack-100-nmc811';
  for (const [url, body] of [
    [`${mine}/versions`, { rules: rulesId }],
    [`${mine}/predecessors`, { predecessors: [passportId] }],
    [`${product}/versions`, { rules: rulesId }],
    [`${product}/versions`, { rules: own, snapshot_id: snapshots[0].id }],
  ] as const)
    expect({ url, status: (await a('POST', url, body)).status }).toEqual({ url, status: 404 });
  const upload = `${product}/documents?kind=data_sheet&name=x.json&rules=${rulesId}`;
  expect((await a('POST', upload, [])).status).toBe(404);
  for (const filter of [`document=${documents[0].id}`, `snapshot=${snapshots[0].id}`])
    expect((await made(a('GET', `/v1/passports/facts?${filter}`))).items).toEqual([]);
  expect((await made(a('GET', `/v1/passports/versions?passport=${passportId}`))).items).toEqual([]);
  await test.settle();
  expect(await everything()).toEqual(before);
  expect((await made(a('GET', '/v1/passports/rules'))).items).toMatchObject([
    { name: rulePackage.id, id: own },
  ]);
});
