import { createPublicKey } from 'node:crypto';
import { gunzipSync } from 'node:zlib';
import { compactVerify, importJWK } from 'jose';
import { expect, test } from 'vitest';
import { readerPoints } from '../../../../src/apps/passports/compile/index.ts';
import { product } from '../../../../src/apps/passports/compile/sample/index.ts';
import { verifyEnvelope } from '../../../../src/apps/passports/export/envelope.ts';
import { contentSecurityPolicy } from '../../../../src/apps/passports/page/page.ts';
import { appendItemEvent } from '../../../../src/apps/passports/write/item-events.ts';
import { ceaseItem } from '../../../../src/apps/passports/write/passports.ts';
import { revokeVersion } from '../../../../src/apps/passports/write/version-steps.ts';
import { testKeys } from '../means.ts';
import { callers, link, linkId, publicServer, readerOfCaller, secrets } from './support.ts';

const accept = (type: string) => ({ accept: type });
const jwk = {
  kty: 'OKP',
  crv: 'Ed25519',
  x: Buffer.from(testKeys.publicKeys['test-1'] ?? []).toString('base64url'),
};

test('BPC-10, BPC-17: the link on the label answers by content type and language, without a key', async () => {
  const { ask } = await publicServer();
  const phone = await ask('GET', link, undefined, {
    accept: 'text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8',
    'accept-language': 'de-DE,de;q=0.9',
  });
  expect(phone.status).toBe(200);
  expect(phone.headers.get('content-type')).toBe('text/html; charset=utf-8');
  expect(phone.headers.get('content-security-policy')).toBe(contentSecurityPolicy);
  expect(phone.headers.get('content-language')).toBe('de');
  expect(phone.headers.get('vary')).toBe('Accept, Accept-Language, Authorization');
  expect(phone.headers.get('cache-control')).toBe('public, max-age=60, must-revalidate');
  expect(phone.headers.get('link')).toContain('rel="alternate"; type="application/vc+jwt"');
  expect(phone.body).toContain('<html lang="de">');
  expect(phone.body).toContain('SP100-000001');
  expect((await ask('GET', `${link}?lang=en`, undefined, { 'accept-language': 'de' })).body).toContain(
    '<html lang="en">',
  );

  const json = await ask('GET', link, undefined, accept('application/json'));
  expect(json.headers.get('content-type')).toContain('application/json');
  expect(verifyEnvelope(JSON.stringify(json.body), { keys: testKeys.publicKeys })).toMatchObject({
    ok: true,
    state: 'ACTIVE',
  });

  const jwt = await ask('GET', link, undefined, accept('application/vc+jwt'));
  expect(jwt.headers.get('content-type')).toBe('application/vc+jwt');
  const { protectedHeader } = await compactVerify(jwt.body, await importJWK(jwk, 'EdDSA'));
  expect(protectedHeader.kid).toBe('did:web:passports.example#test-1');
  const jsonLd = await ask('GET', link, undefined, accept('application/ld+json'));
  expect(jsonLd.body).toMatchObject({
    issuer: 'did:web:passports.example',
    proof: { cryptosuite: 'eddsa-jcs-2022' },
  });
  const did = await ask('GET', '/.well-known/did.json');
  expect(did.body).toMatchObject({
    id: 'did:web:passports.example',
    assertionMethod: [jsonLd.body.proof.verificationMethod],
  });

  expect((await ask('GET', `${link}?format=pdf`)).headers.get('content-type')).toBe('application/pdf');
  expect((await ask('GET', `${link}?format=pdf&label=50x30`)).status).toBe(200);
  expect((await ask('GET', link, undefined, accept('image/webp'))).status).toBe(406);
  expect((await ask('GET', `/01/${product.gtin}`)).body).toContain(product.name);
  expect((await ask('GET', `/01/${product.gtin}/status`)).status).toBe(200);
  expect((await ask('HEAD', link)).status).toBe(200);
});

test('BPC-10: a reader that has the page already gets no second one, and each form has its own tag', async () => {
  const { ask, change, passport, caller } = await publicServer();
  const first = await ask('GET', link);
  const tag = first.headers.get('etag') ?? '';
  const again = await ask('GET', link, undefined, { 'if-none-match': `"x", ${tag}` });
  expect([again.status, again.body]).toEqual([304, '']);
  const german = await ask('GET', link, undefined, { 'if-none-match': tag, 'accept-language': 'de' });
  expect(german.status).toBe(200);
  const guest = await caller('guest');
  const seen = (await guest('GET', link)).headers;
  expect([seen.get('cache-control'), seen.get('etag') === tag]).toEqual(['private, no-store', false]);
  const { id } = await passport('SP100-000001');
  await change((work) =>
    appendItemEvent(work, testKeys, id, {
      type: 'stateOfCharge',
      occurredAt: new Date('2027-06-01T10:00:00Z'),
      data: { value: { value: 437, scale: 1, unit: '%' } },
    }),
  );
  const later = await guest('GET', link, undefined, { 'if-none-match': seen.get('etag') ?? '' });
  expect([later.status, later.body.includes('43.7 %')]).toEqual([200, true]);
  expect((await ask('GET', link, undefined, { 'if-none-match': tag })).status).toBe(304);
});

test('BPC-12: each caller gets the parts of its points in every form, and nothing of the others', async () => {
  const { caller, change, passport } = await publicServer();
  const { id } = await passport('SP100-000001');
  await change((work) =>
    appendItemEvent(work, testKeys, id, {
      type: 'stateOfCharge',
      occurredAt: new Date('2027-06-01T10:00:00Z'),
      data: { value: { value: 437, scale: 1, unit: '%' } },
    }),
  );
  const paths = [
    ...['html', 'json', 'jsonld', 'vc%2Bjwt'].map((format) => `${link}?format=${format}`),
    `/01/${product.gtin}?format=json`,
    `/v1/dpps/${linkId}`,
    `/v1/dpps/${linkId}?representation=full`,
    `/v1/dppsByProductId/${linkId}`,
    `/v1/dppsByIdAndDate/${linkId}?date=2999-01-01T00:00:00Z`,
  ];
  for (const name of callers) {
    const ask = await caller(name);
    const points: readonly number[] = readerPoints[readerOfCaller[name]];
    let all = '';
    for (const path of paths) {
      const { status, body } = await ask('GET', path);
      expect({ name, path, status }).toEqual({ name, path, status: 200 });
      const text = typeof body === 'string' ? body : JSON.stringify(body);
      const [, payload = ''] = path.includes('jwt') ? text.split('.') : [];
      const shown = payload === '' ? text : Buffer.from(payload, 'base64url').toString();
      all += shown.replaceAll('\\"', '"');
      for (const [point, hidden] of Object.entries(secrets))
        if (!points.includes(Number(point)))
          for (const secret of hidden)
            expect(shown.replaceAll('\\"', '"').includes(secret), `${name} sees ${secret} at ${path}`).toBe(
              false,
            );
    }
    // What the points allow is there: an empty answer would hide everything.
    for (const point of points)
      expect(all.includes(secrets[point as 2]?.[0] ?? 'SP100-000001'), `${name} sees point ${point}`).toBe(
        true,
      );
  }
});

test('BPC-11, BPC-16: a revoked version says so and has no credential; its status list shows it', async () => {
  const { ask, change, passport, rows } = await publicServer();
  const { id, activeVersionId } = await passport('SP100-000001');
  const credential = (await ask('GET', link, undefined, accept('application/ld+json'))).body;
  const entry = credential.credentialStatus;
  expect(entry).toMatchObject({ type: 'BitstringStatusListEntry', statusPurpose: 'revocation' });
  expect(entry.statusListCredential).toBe(`https://passports.example${link}/status`);
  const isSet = async (): Promise<boolean> => {
    const { encodedList } = JSON.parse((await ask('GET', `${link}/status`)).body).credentialSubject;
    const bits = gunzipSync(Buffer.from(encodedList.slice(1), 'base64url'));
    expect(bits.length * 8).toBeGreaterThanOrEqual(131_072);
    const index = Number(entry.statusListIndex);
    return ((bits[index >> 3] ?? 0) & (0x80 >> (index & 7))) !== 0;
  };
  expect(await isSet()).toBe(false);

  await change((work) => revokeVersion(work, activeVersionId ?? '', 'the footprint was wrong'));
  expect(await isSet()).toBe(true);
  const page = await ask('GET', link);
  expect([page.status, page.body.includes('Do not rely on it')]).toEqual([200, true]);
  expect(page.body).not.toContain('the footprint was wrong');
  for (const type of ['application/vc+jwt', 'application/ld+json']) {
    const refused = await ask('GET', link, undefined, accept(type));
    expect([refused.status, refused.body.error.code]).toEqual([410, 'PASSPORT_NOT_ACTIVE']);
  }
  const json = await ask('GET', link, undefined, accept('application/json'));
  expect(verifyEnvelope(JSON.stringify(json.body), { keys: testKeys.publicKeys })).toMatchObject({
    ok: false,
    state: 'REVOKED',
    mismatches: [{ part: 'state' }],
  });
  expect((await ask('GET', `${link}?format=pdf&label=50x30`)).status).toBe(410);
  expect((await ask('GET', `/v1/dpps/${linkId}`)).body.dppStatus).toBe('Invalid');
  expect(await rows('select 1 from passports.versions where passport_id = $1', [id])).toHaveLength(1);
});

test('BPC-11, BPC-16: after a new version the link shows it; the old one is superseded, and still there by id and by date', async () => {
  const { ask, passport, reissue, rows } = await publicServer();
  const before = await passport('SP100-000001');
  const first = await ask('GET', link);
  const old = (await ask('GET', `/v1/dpps/${linkId}`)).body;
  await reissue('2028-01-01T00:00:00Z');
  const after = await passport('SP100-000001');
  expect(after.activeVersionId).not.toBe(before.activeVersionId);
  const now = await ask('GET', link, undefined, { 'if-none-match': first.headers.get('etag') ?? '' });
  expect([now.status, now.body.includes('1 January 2028')]).toEqual([200, true]);
  const pinned = `${link}?version=${before.activeVersionId}`;
  const page = await ask('GET', pinned);
  expect(page.status).toBe(200);
  expect(page.body).toContain('A newer version has taken the place of this one. Since 1 January 2028.');
  expect(page.body).toContain(`?lang=de&amp;version=${before.activeVersionId}`);
  expect((await ask('GET', `${pinned}&format=json`)).body).toMatchObject({ state: 'SUPERSEDED' });
  expect((await ask('GET', `${pinned}&format=jsonld`)).status).toBe(410);
  const list = JSON.parse((await ask('GET', `${link}/status`)).body).credentialSubject.encodedList;
  expect(gunzipSync(Buffer.from(list.slice(1), 'base64url'))[0]).toBe(0b0100_0000);

  const [ended] = await rows<{ at: Date }>('select ended_at as at from passports.versions where id = $1', [
    before.activeVersionId,
  ]);
  const at = (ms: number) =>
    ask(
      'GET',
      `/v1/dppsByIdAndDate/${linkId}?date=${new Date((ended?.at.getTime() ?? 0) + ms).toISOString()}`,
    );
  expect((await at(-1)).body).toMatchObject({ receiptHash: old.receiptHash, dppStatus: 'Inactive' });
  expect((await at(1)).body).toMatchObject({ lastUpdate: '2028-01-01T00:00:00Z', dppStatus: 'Active' });
});

test('BPC-11: of a ceased passport only a tombstone is left, at the same address, for everybody', async () => {
  const { ask, caller, change, passport } = await publicServer();
  const { id } = await passport('SP100-000001');
  await change((work) => ceaseItem(work, id, 'recycled at plant 7'));
  for (const name of ['nobody', 'guest', 'authority', 'admin'] as const) {
    const read = await caller(name);
    const page = await read('GET', link);
    expect([page.status, page.body.includes('has ceased to exist')]).toEqual([410, true]);
    const json = await read('GET', link, undefined, accept('application/json'));
    expect([json.status, json.body]).toMatchObject([410, { state: 'CEASED', serial: 'SP100-000001' }]);
    const dpp = await read('GET', `/v1/dpps/${linkId}`);
    expect(dpp.body).toMatchObject({ dppStatus: 'Archived' });
    for (const each of [page.body, JSON.stringify(json.body), JSON.stringify(dpp.body)]) {
      expect(each).not.toContain('99.962');
      expect(each).not.toContain('plant 7');
    }
    expect((await read('GET', link, undefined, accept('application/vc+jwt'))).status).toBe(410);
  }
  expect((await ask('GET', `/01/${product.gtin}`)).status).toBe(200);
});

test('BPC-10: what is not there is a page for people and an error for programs; odd addresses do no harm', async () => {
  const { ask } = await publicServer(0);
  const gone = await ask('GET', '/01/09506000134352/21/NONE', undefined, { 'accept-language': 'de' });
  expect([gone.status, gone.headers.get('content-type')]).toEqual([404, 'text/html; charset=utf-8']);
  expect(gone.body).toContain('Hier gibt es keinen Pass');
  expect(gone.headers.get('content-security-policy')).toBe(contentSecurityPolicy);
  for (const path of [
    '/01/123/21/x',
    '/01/09506000134352/21/%00',
    `/01/09506000134352/21/${'x'.repeat(400)}`,
    '/01/09506000134352/21/..%2f..%2fetc',
    '/01/99999999999999/21/SP100-000001/status',
    `${link}?version=00000000-0000-4000-8000-000000000000`,
  ]) {
    const { status, body } = await ask('GET', path, undefined, accept('application/json'));
    expect([path, status < 500 && status >= 400, body.error?.code]).toEqual([path, true, body.error?.code]);
  }
  expect((await ask('GET', `${link}?version=x`)).status).toBe(400);
});

test('BPC-9: the did document has every public key, old ones too', async () => {
  const old = Buffer.alloc(32, 9);
  const { ask } = await publicServer(0, {
    'passports.publicKeys': `old-1=${old.toString('base64')}`,
  } as object);
  const { body } = await ask('GET', '/.well-known/did.json');
  expect(body.verificationMethod.map(({ id }: { id: string }) => id).sort()).toEqual([
    'did:web:passports.example#old-1',
    'did:web:passports.example#test-1',
  ]);
  expect(createPublicKey({ key: jwk, format: 'jwk' }).asymmetricKeyType).toBe('ed25519');
});
