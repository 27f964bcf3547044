import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { passportAccess, readerOf } from '../../../src/apps/passports/access.ts';
import { passportsApp } from '../../../src/apps/passports/app.ts';
import { documents } from '../../../src/apps/passports/compile/sample/index.ts';
import { type AccessPoint, readerPoints } from '../../../src/apps/passports/compile/types.ts';
import { type Role, roles } from '../../../src/host/roles.ts';
import type { AnyRoute } from '../../../src/host/route.ts';
import { routesOf } from '../../../src/server/routes/index.ts';
import type { Ask } from '../../server/support.ts';
import { csv, documentUrl, made, type PassportServer, passportServer, putSample } from './api.ts';

/** Texts that only readers of a point may see: values in documents of that point, and the hashes of those documents. */
const secretValues: Readonly<Record<2 | 3 | 4, readonly [document: string, from: RegExp, to: string]>> = {
  2: ['service.csv', /safety\.pdf/, 'MARKER-POINT-2'],
  3: ['test-reports.csv', /pack-100-2026/, 'MARKER-POINT-3'],
  4: ['individual.csv', /accidents,none/, 'accidents,MARKER-POINT-4'],
};

interface Scene extends PassportServer {
  readonly secrets: readonly { readonly point: AccessPoint; readonly text: string }[];
  readonly params: Readonly<Record<string, readonly string[]>>;
}

/** The sample with a marker in each document that is not public, and with individual data. */
async function markedSample(): Promise<Scene> {
  const test = await passportServer();
  const ask = await test.as('admin');
  const rulesId = await putSample(ask);
  const secrets: { point: AccessPoint; text: string }[] = [{ point: 4, text: 'MARKER-EVENT' }];
  let documentId = '';
  for (const { name, input } of documents) {
    let text = Buffer.from(input.bytes).toString('utf8');
    for (const [point, [marked, from, to]] of Object.entries(secretValues))
      if (marked === name) {
        text = text.replace(from, to);
        expect(text).toContain('MARKER-POINT');
        const secret = Number(point) as AccessPoint;
        secrets.push({ point: secret, text: `MARKER-POINT-${point}` });
        secrets.push({ point: secret, text: createHash('sha256').update(text).digest('hex') });
      }
    const url = documentUrl(name, input.kind, `&rules=${rulesId}&with_items=true`);
    documentId = (await made(ask('POST', url, text, csv))).version_id;
  }
  await test.settle();
  const { items } = await made(ask('GET', '/v1/passports?serial=SP100-000002'));
  const [{ id: passport, active_version_id: version }] = items;
  await made(ask('POST', `/v1/passports/items/${passport}/status`, { status: 'remanufactured' }));
  secrets.push({ point: 4, text: 'remanufactured' });
  const data = { note: 'MARKER-EVENT' };
  const event = { type: 'accident', occurred_at: '2028-01-01T00:00:00Z', data };
  await made(ask('POST', `/v1/passports/items/${passport}/events`, event));
  const { model_version_id: modelVersion } = await made(ask('GET', `/v1/passports/versions/${version}`));
  const { items: snapshots } = await made(ask('GET', '/v1/passports/snapshots'));
  return {
    ...test,
    secrets,
    params: {
      '/v1/passports/products': ['pack-100-nmc811'],
      '/v1/passports/documents': [documentId],
      '/v1/passports/snapshots': [snapshots[0].id],
      '/v1/passports/rules': [rulesId],
      '/v1/passports/items': [passport],
      '/v1/passports/versions': [version, modelVersion],
      '/v1/passports': [passport],
    },
  };
}

const reads = (routes: readonly AnyRoute[]) =>
  routes.filter(({ method, readsOnly, public: open }) => !open && (method === 'GET' || readsOnly));

const urlsOf = ({ params }: Scene, url: string): readonly string[] =>
  url.includes(':')
    ? (params[url.slice(0, url.indexOf('/:'))] ?? []).map((id) => url.replace(/:\w+/, id))
    : [url];

const bodyOf = ({ action }: AnyRoute): unknown =>
  action === 'passport_rules.check' ? { package: {} } : undefined;

/** Every kind of caller: each role, each access of guests, no key, and keys of another tenant. */
async function callersOf(
  test: Scene,
): Promise<readonly { name: string; ask: Ask; points: readonly AccessPoint[] }[]> {
  const own: readonly { readonly role: Role; readonly access?: string }[] = [
    ...roles.filter((role) => role !== 'guest').map((role) => ({ role })),
    ...passportAccess.map(({ name }) => ({ role: 'guest' as const, access: name })),
  ];
  const callers = [];
  for (const { role, access } of own) {
    const reader = readerOf({ role, access: access ?? null });
    const points = readerPoints[reader];
    callers.push({ name: access ?? role, ask: await test.as(role, 'default', access), points });
    callers.push({
      name: `${access ?? role} of another tenant`,
      ask: await test.as(role, 'b', access),
      points: [],
    });
  }
  return [...callers, { name: 'nobody', ask: test.ask, points: [1] as const }];
}

test('BPC-12: each caller × each route: what a reader may not see is in no answer, no header and no error', {
  timeout: 240_000,
}, async () => {
  const test = await markedSample();
  const routes = reads((await passportsApp.routes?.(test.host)) ?? []);
  expect(routes.length).toBeGreaterThan(15);
  const seen: Record<string, Record<string, number>> = {};
  const shown: { readonly text: string; readonly caller: string }[] = [];
  for (const { name, ask, points } of await callersOf(test)) {
    const hidden = test.secrets.filter(({ point }) => !points.includes(point));
    for (const route of routes) {
      // Who uploads documents may see what became of them; nothing else that is withheld.
      if (name === 'producer' && route.action === 'passport_documents.show') continue;
      const urls = urlsOf(test, route.url);
      expect({ route: route.url, urls: urls.length > 0 }).toEqual({ route: route.url, urls: true });
      for (const url of urls) {
        const answer = await ask(route.method, url, bodyOf(route));
        const text = `${JSON.stringify([...answer.headers])} ${JSON.stringify(answer.body)}`;
        const leaked = hidden.filter((secret) => text.includes(secret.text)).map((secret) => secret.text);
        expect({ caller: name, url, leaked }).toEqual({ caller: name, url, leaked: [] });
        seen[route.action] = { ...seen[route.action], [name]: answer.status };
        for (const secret of test.secrets)
          if (text.includes(secret.text)) shown.push({ text: secret.text, caller: name });
      }
    }
  }
  // Who is let in: keys of the route's roles; guests see individual data with a legitimate interest alone.
  for (const { action, roles: allowed } of routes)
    for (const [caller, status] of Object.entries(seen[action] ?? {})) {
      const [who = ''] = caller.split(' of another');
      const role = who.startsWith('passports.') ? 'guest' : who;
      const isIn = (allowed as readonly string[]).includes(role);
      const refused = isIn && action === 'passport_events.list' && who === 'passports.authority';
      const expected = role === 'nobody' ? 401 : !isIn || refused ? 403 : undefined;
      if (expected !== undefined)
        expect({ action, caller, status }).toEqual({ action, caller, status: expected });
      else expect([200, 404], `${action} for ${caller}`).toContain(status);
      if (isIn && !refused && !caller.includes('another'))
        expect({ action, caller, status }).toMatchObject({ status: 200 });
    }
  // What is withheld from some is shown to those who may see it, so that the search above could find it.
  for (const { point, text } of test.secrets)
    for (const reader of ['passports.authority', 'passports.legitimate_interest'] as const) {
      const mayPoints = readerPoints[readerOf({ role: 'guest', access: reader })];
      const isShown = shown.some((each) => each.text === text && each.caller === reader);
      expect({ text, reader, isShown }).toEqual({ text, reader, isShown: mayPoints.includes(point) });
    }
  expect(seen['passport_versions.payload']).toMatchObject({
    'passports.authority': 200,
    nobody: 401,
    producer: 403,
  });
});

test('BPC-12: search, time line, events, jobs and audit tell people without access nothing that is withheld', {
  timeout: 240_000,
}, async () => {
  const test = await markedSample();
  const core = reads((await routesOf([], test.host)).concat()).filter(({ url }) => !url.includes(':'));
  const passport = test.params['/v1/passports']?.[0];
  for (const { name, ask, points } of await callersOf(test)) {
    if (points.length === 4) continue;
    const hidden = test.secrets.filter(({ point }) => !points.includes(point));
    const urls = [
      ...core.map(({ url }) => (url === '/v1/search' ? `${url}?q=MARKER` : url)),
      '/v1/search?q=SP100',
      `/v1/timeline/passport:${passport}`,
      '/v1/timeline/battery:SP100-000002',
      '/v1/events?limit=200',
      '/v1/jobs?status=SUCCEEDED&limit=200',
    ];
    for (const url of urls) {
      const { body, status } = await ask('GET', url);
      const text = JSON.stringify(body);
      const leaked = hidden.filter((secret) => text.includes(secret.text)).map((secret) => secret.text);
      expect({ caller: name, url, leaked }).toEqual({ caller: name, url, leaked: [] });
      if (name.startsWith('passports.')) expect({ url, status }).toEqual({ url, status: 403 });
    }
  }
});

test('BPC-12: a guest is what its key says, and no other role has access of its own', () => {
  expect(roles.map((role) => [role, readerOf({ role, access: null })])).toEqual([
    ['admin', 'owner'],
    ['operator', 'owner'],
    ['auditor', 'owner'],
    ['producer', 'public'],
    ['guest', 'public'],
  ]);
  expect(readerOf({ role: 'guest', access: 'passports.authority' })).toBe('authority');
  expect(readerOf({ role: 'guest', access: 'passports.legitimate_interest' })).toBe('legitimate_interest');
  expect(readerOf({ role: 'public', access: 'passports.authority' })).toBe('public');
});
