import { expect, test } from 'vitest';
import { activeSample, made, passportServer } from './api.ts';

interface Moment {
  readonly type: string;
  readonly at: string;
  readonly text: string;
}

test('BPC-11: the time line of a passport, a serial number and a document; search by each of them', {
  timeout: 240_000,
}, async () => {
  const test = await passportServer();
  const ask = await test.as('operator');
  const { passportId, versionId } = await activeSample(test, ask);
  await made(ask('POST', `/v1/passports/items/${passportId}/status`, { status: 'reused' }));
  await made(ask('POST', `/v1/passports/versions/${versionId}/revoke`, { reason: 'a test' }));
  const typesOf = async (subject: string): Promise<string[]> =>
    (await made(ask('GET', `/v1/timeline/${subject}`))).items.map(({ type }: Moment) => type);
  const life = [
    'version.revoked',
    'passport.status_changed',
    'version.active',
    'version.labelled',
    'version.signed',
    'version.compiled',
    'version.requested',
    'passport.item_added',
  ];
  expect(await typesOf(`passport:${passportId}`)).toEqual(life);
  expect(await typesOf(`passport:${passportId.toUpperCase()}`)).toEqual(life);
  expect(await typesOf('battery:SP100-000002')).toEqual(life);
  const { items } = await made(ask('GET', '/v1/passports/documents?limit=1'));
  const [document] = items;
  for (const name of [document.id, document.document_id, document.sha256])
    expect(await typesOf(`document:${name}`)).toEqual(['document.validated', 'document.uploaded']);
  for (const nothing of ['passport:1', 'battery:SP100', 'document:x', 'basket:SP100-000002'])
    expect(await typesOf(nothing)).toEqual([]);

  // Page by page, each moment once.
  const all = (await made(ask('GET', `/v1/timeline/passport:${passportId}`))).items;
  const paged: Moment[] = [];
  let cursor: string | null = null;
  do {
    const more: string = cursor === null ? '' : `&cursor=${encodeURIComponent(cursor)}`;
    const page = await made(ask('GET', `/v1/timeline/passport:${passportId}?limit=2${more}`));
    paged.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor !== null);
  expect(paged).toEqual(all);

  const found = async (text: string) =>
    (await made(ask('GET', `/v1/search?q=${encodeURIComponent(text)}`))).items.map(
      ({ type, id }: { type: string; id: string }) => `${type}:${id}`,
    );
  expect(await found('SP100-00000')).toEqual(['1', '2', '3'].map((n) => `battery:SP100-00000${n}`));
  expect(await found(passportId.slice(0, 13))).toContain(`passport:${passportId}`);
  expect(await found('bill-of')).toEqual([expect.stringMatching(/^document:/)]);
  expect(await found(document.sha256.slice(0, 20))).toEqual([`document:${document.sha256}`]);
  const other = await test.as('admin', 'b');
  for (const text of ['SP100', passportId, document.sha256])
    expect((await made(other('GET', `/v1/search?q=${text}`))).items).toEqual([]);
});
