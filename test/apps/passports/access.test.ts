import { expect, test } from 'vitest';
import { readerOf } from '../../../src/apps/passports/access.ts';
import { passportsApp } from '../../../src/apps/passports/app.ts';
import { roles } from '../../../src/host/roles.ts';
import type { AnyRoute } from '../../../src/host/route.ts';
import { routesOf } from '../../../src/server/routes/index.ts';
import type { Ask } from '../../server/support.ts';
import { callersOf, issuer, type TestCaller } from './access/callers.ts';
import { markedScene, maySee, type Scene } from './access/scene.ts';
import { coreTable, passportTable, type Table } from './access/table.ts';
import { made, passportServer } from './api.ts';

/** What was seen by whom, so that a search that finds nothing proves something. */
interface Found {
  readonly caller: string;
  readonly action: string;
  readonly path: string;
  readonly text: string;
}

interface Outcome {
  readonly asked: number;
  /** Each is a sentence. */
  readonly faults: readonly string[];
  readonly found: readonly Found[];
  /** Types of content that were answered with success, by action. */
  readonly types: ReadonlyMap<string, ReadonlySet<string>>;
}

/** Asks as each caller for each case of each route, and searches each answer for what the caller may not see. */
async function tryAll(
  scene: Scene,
  callers: readonly TestCaller[],
  routes: readonly AnyRoute[],
  table: Table,
): Promise<Outcome> {
  const faults: string[] = [];
  const found: Found[] = [];
  const types = new Map<string, Set<string>>();
  let asked = 0;
  for (const [action, cases] of Object.entries(table)) {
    const route = routes.find((each) => each.action === action);
    if (!route) {
      faults.push(`the table has ${action}, and there is no such route`);
      continue;
    }
    for (const { path, body, headers, status } of cases)
      for (const caller of callers) {
        const answer = await caller.ask(route.method, path, body, headers);
        asked += 1;
        const name = `${caller.name} at ${route.method} ${path}`;
        const expected = status(caller);
        if (answer.status !== expected)
          faults.push(`${name}: ${answer.status} instead of ${expected}: ${answer.text.slice(-300)}`);
        if (answer.status < 300 && answer.type !== null)
          types.set(action, (types.get(action) ?? new Set<string>()).add(answer.type));
        for (const secret of scene.secrets) {
          if (!answer.text.includes(secret.text)) continue;
          found.push({ caller: caller.name, action, path, text: secret.text });
          if (!maySee(caller, secret)) faults.push(`${name} shows ${secret.text}, which is of ${secret.of}`);
        }
      }
  }
  return { asked, faults, found, types };
}

const actionsOf = (routes: readonly AnyRoute[]): readonly string[] =>
  routes.map(({ action }) => action).sort();

const isSeen = ({ found }: Outcome, caller: string, text: string, where: RegExp): boolean =>
  found.some(
    (each) => each.caller === caller && each.text === text && where.test(`${each.action} ${each.path}`),
  );

test('BPC-12: each caller × each route × each form: the expected outcome, and nothing withheld in body, header or error', {
  timeout: 600_000,
}, async () => {
  const scene = await markedScene();
  const routes = (await passportsApp.routes?.(scene.host)) ?? [];
  const table = passportTable(scene);
  // A new route has to say here who gets what.
  expect(Object.keys(table).sort()).toEqual(actionsOf(routes));
  const callers = await callersOf(scene);
  const outcome = await tryAll(scene, callers, routes, table);
  expect(outcome.faults).toEqual([]);
  expect(outcome.asked).toBeGreaterThan(2000);
  // A new form of a route has to be in the table, too.
  for (const { action, produces = 'application/json', roles: allowed, public: open } of routes) {
    const isAnswered = table[action]?.some(({ status }) => callers.some((each) => status(each) < 300));
    if (isAnswered)
      expect({ action, types: [...(outcome.types.get(action) ?? [])].sort() }).toEqual({
        action,
        types: [produces].flat().sort(),
      });
    expect(allowed.length > 0 || open !== undefined).toBe(true);
  }
  // The search can find what it looks for: in each form that has the marker, for those who may see it.
  const forms = ['html', 'json', 'jsonld', 'vc%2Bjwt', 'pdf', 'bundle'];
  for (const form of forms) {
    const where = new RegExp(`^passport_link\\.show .*/SP100-000002\\?format=${form}$`);
    expect({ form, seen: isSeen(outcome, 'interest', 'MARKERSERVICE', where) }).toEqual({ form, seen: true });
    expect({ form, seen: isSeen(outcome, 'authority', 'MARKERREPORT', where) }).toEqual({ form, seen: true });
    expect({ form, seen: isSeen(outcome, 'interest', 'MARKERACCIDENT', where) }).toEqual({
      form,
      seen: true,
    });
    expect({ form, seen: isSeen(outcome, 'admin', 'MARKERMATERIAL', where) }).toEqual({ form, seen: true });
  }
  for (const [caller, text, where] of [
    ['interest', 'MARKEREVENT', /^passport_events\.list /],
    ['interest', 'MARKEREVENT', /format=html$/],
    ['interest', 'MARKEREVENT', /format=bundle$/],
    ['interest', 'remanufactured', /^passports\.show /],
    ['authority', 'MARKERREPORT', /^passport_versions\.payload /],
    ['authority', 'MARKERREPORT', /^passport_versions\.proof /],
    ['authority', 'MARKERREPORT', /^dpps\.read .*full$/],
    ['authority', 'MARKERREPORT', /^dpps\.element /],
    ['auditor', 'MARKERPROBLEM', /^passport_documents\.show /],
    ['auditor', 'MARKERPROBLEM', /^passport_documents\.content /],
    ['operator', 'MARKERFACT', /^passport_facts\.list /],
    ['operator', 'MARKERREVOKED', /^passport_versions\.show /],
    ['operator', 'MARKERLASTEVENT', /^passport_events\.list /],
  ] as const)
    expect({ caller, text, where, seen: isSeen(outcome, caller, text, where) }).toMatchObject({ seen: true });
});

test('BPC-12: search, time line, events, jobs and the rest of the API give nobody what is withheld', {
  timeout: 600_000,
}, async () => {
  const scene = await markedScene();
  const routes = (await routesOf([], scene.host)).filter(({ method }) => method === 'GET');
  const table = coreTable(scene);
  expect(Object.keys(table).sort()).toEqual(actionsOf(routes));
  const callers = await callersOf(scene);
  const outcome = await tryAll(scene, callers, routes, table);
  expect(outcome.faults).toEqual([]);
  for (const [caller, text, where] of [
    ['operator', 'MARKERFACT', /^jobs\.show /],
    ['operator', 'MARKERFACT', /^timeline\.read .*job/],
    ['auditor', 'MARKERCEASED', /^timeline\.read .*passport/],
    ['auditor', 'MARKERNAME', /^search\.read /],
  ] as const)
    expect({ caller, text, where, seen: isSeen(outcome, caller, text, where) }).toMatchObject({ seen: true });
  // A producer still sees that a job of the app failed, and how.
  const producer = callers.find(({ name }) => name === 'producer');
  const jobs = await producer?.ask('GET', '/v1/jobs?kind=passports.build-snapshot&status=FAILED');
  expect(jobs?.text).toContain('failed with DUPLICATE_FACT; operators and auditors can read why');
  const all = await producer?.ask('GET', '/v1/jobs?limit=200');
  expect(all?.text).toContain('passports.parse-facts');
  expect(all?.text).not.toContain(scene.documents.rejected);
  // The live stream is for those who may read events.
  for (const { name, own, ask } of callers)
    if (own === undefined || !['admin', 'operator', 'auditor'].includes(own))
      expect({ name, status: (await ask('GET', '/v1/stream')).status }).toEqual({
        name,
        status: own === undefined ? 401 : 403,
      });
});

test('BPC-12: a producer knows documents whose bytes it has, a guest batteries with passports; a tag tells nothing of individual data', {
  timeout: 240_000,
}, async () => {
  const scene = await markedScene();
  const { rejected, rejectedHash } = scene.documents;
  const path = `/v1/passports/documents/${rejected}`;
  const producer = await scene.as('producer', issuer);
  expect(await made(producer('GET', `${path}?sha256=${rejectedHash}`))).toMatchObject({
    state: 'REJECTED',
    problems: [{ row: 1, column: 'value', message: expect.stringContaining('MARKERPROBLEM') }],
  });
  expect(await producer('GET', path)).toMatchObject({
    status: 400,
    body: { error: { message: expect.stringMatching(/^query\.sha256: a producer names the SHA-256/) } },
  });
  // Not even whether there is one with another hash.
  const [wrong, none] = [
    await producer('GET', `${path}?sha256=${'0'.repeat(64)}`),
    await producer('GET', `/v1/passports/documents/${scene.rules}?sha256=${'0'.repeat(64)}`),
  ];
  expect([wrong.status, none.status]).toEqual([404, 404]);
  expect(wrong.body.error.message.replace(rejected, 'x')).toBe(
    none.body.error.message.replace(scene.rules, 'x'),
  );
  const other = await scene.as('producer', 'other');
  expect((await other('GET', `${path}?sha256=${rejectedHash}`)).status).toBe(404);

  // What a battery became is told once that has a passport itself.
  const operator = await scene.as('operator', issuer);
  const authority = await scene.as('guest', issuer, 'passports.authority');
  for (const id of [scene.newcomer, scene.batteries.revoked.passport])
    await made(
      operator('POST', `/v1/passports/items/${id}/predecessors`, {
        predecessors: [scene.batteries.active.passport],
      }),
    );
  const successors = async (ask: Ask) =>
    (await made(ask('GET', `/v1/passports/${scene.batteries.active.passport}`))).successors.map(
      ({ serial }: { serial: string }) => serial,
    );
  expect(await successors(operator)).toEqual(['SP100-000004', 'SP100-000005']);
  expect(await successors(authority)).toEqual(['SP100-000004']);

  const { link, passport } = scene.batteries.active;
  const readers = {
    nobody: scene.ask,
    authority,
    interest: await scene.as('guest', issuer, 'passports.legitimate_interest'),
    owner: await scene.as('auditor', issuer),
  };
  const tags = async () =>
    Object.fromEntries(
      await Promise.all(
        Object.entries(readers).map(
          async ([name, ask]) => [name, (await ask('GET', link)).headers.get('etag')] as const,
        ),
      ),
    );
  const before = await tags();
  const event = { type: 'accident', occurred_at: '2029-01-01T00:00:00Z', data: { note: 'another' } };
  await made(producer('POST', `/v1/passports/items/${passport}/events`, event));
  const after = await tags();
  expect(Object.keys(readers).filter((name) => before[name] !== after[name])).toEqual(['interest', 'owner']);
});

test('BPC-12: a guest is what its key says, and no other role has access of its own', async () => {
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
  // The database keeps it so.
  const { keys, rows } = await passportServer();
  for (const given of [{ role: 'producer', access: 'passports.authority' }, { role: 'guest' }] as const)
    await expect(keys.create({ tenantId: 'default', name: 'x', ...given })).rejects.toMatchObject({
      code: 'BAD_OPTION',
    });
  const { apiKey } = await keys.create({ tenantId: 'default', name: 'x', role: 'producer' });
  await expect(
    rows(`update tallyman_server.api_keys set access = 'passports.authority' where id = $1`, [apiKey.id]),
  ).rejects.toThrow(/api_keys_access_of_guests/);
});
