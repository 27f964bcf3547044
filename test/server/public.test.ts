import { expect, onTestFinished, test } from 'vitest';
import { z } from 'zod';
import { TallymanError } from '../../src/engine/errors.ts';
import type { App } from '../../src/host/app.ts';
import { type AnyRoute, Reply, route } from '../../src/host/route.ts';
import { parcelsApp } from '../host/sample/app.ts';
import { until } from '../support/until.ts';
import { server } from './support.ts';

const openRoute = (more: Partial<AnyRoute> = {}): AnyRoute =>
  route({
    method: 'GET',
    url: '/open/:tenant',
    action: 'open.read',
    summary: 'A page that needs no key',
    roles: [],
    public: {
      why: 'anybody may read it',
      tenantOf: async (on, { params }) => {
        const { tenant } = params as { tenant: string };
        const { rows } = await on.query('select 1 from tallyman_server.tenants where id = $1', [tenant]);
        return rows.length > 0 ? tenant : undefined;
      },
    },
    params: z.strictObject({ tenant: z.string().max(20) }),
    produces: ['text/html', 'application/json'],
    response: z.string(),
    handle: async ({ caller, scope, headers }) => {
      const { rows } = await scope.query(`select current_setting('tallyman.tenant') as tenant`);
      const seen = JSON.stringify({ ...caller, ...rows[0], headers });
      if (headers.accept?.includes('json')) return new Reply('application/json', seen);
      return new Reply('text/html; charset=utf-8', '<p>ä</p>', { status: 203, headers: { etag: '"1"' } });
    },
    ...more,
  } as AnyRoute);

const appWith = (...routes: AnyRoute[]): App => ({
  ...parcelsApp,
  access: [{ name: 'parcels.seen', summary: 'people who wait for a parcel' }],
  routes: async () => routes,
});

test('a public route answers without a key, in the tenant that it names, with any type of content', async () => {
  const test = await server({ apps: [appWith(openRoute())] });
  await test.as('admin', 'a');
  const page = await test.ask('GET', '/open/a');
  expect(page).toMatchObject({ status: 203, body: '<p>ä</p>' });
  expect(page.headers.get('content-type')).toBe('text/html; charset=utf-8');
  expect(page.headers.get('etag')).toBe('"1"');
  const json = { accept: 'application/json', cookie: 'a=b' };
  expect((await test.ask('GET', '/open/a', undefined, json)).body).toMatchObject({
    tenantId: 'a',
    tenant: 'a',
    role: 'public',
    access: null,
    actor: 'public',
    headers: { accept: 'application/json' },
  });
  expect((await test.ask('GET', '/open/a', undefined, json)).body.headers).not.toHaveProperty('cookie');
  expect((await test.ask('GET', '/open/nobody')).status).toBe(404);
  expect((await test.ask('GET', `/open/${'x'.repeat(30)}`)).status).toBe(400);
  expect((await test.ask('HEAD', '/open/a')).status).toBe(203);
});

test('at a public route a key of its tenant counts, one of another tenant does not, and a wrong one is refused', async () => {
  const test = await server({ apps: [appWith(openRoute())] });
  const json = { accept: 'application/json' };
  const guest = await test.as('guest', 'a', 'parcels.seen');
  expect((await guest('GET', '/open/a', undefined, json)).body).toMatchObject({
    role: 'guest',
    access: 'parcels.seen',
  });
  const other = await test.as('admin', 'b');
  expect((await other('GET', '/open/a', undefined, json)).body).toMatchObject({
    tenantId: 'a',
    role: 'public',
  });
  const wrong = { ...json, authorization: `Bearer tlm_${'a'.repeat(12)}_${'b'.repeat(43)}` };
  expect((await test.ask('GET', '/open/a', undefined, wrong)).status).toBe(401);
});

test('also where no key exists, who comes without one to a public route is nobody', async () => {
  const test = await server({ apps: [appWith(openRoute())] });
  const { body } = await test.ask('GET', '/open/default', undefined, { accept: 'application/json' });
  expect(body).toMatchObject({ role: 'public', actor: 'public' });
});

test('a stranger that asks too often at a public route is told when to come back', async () => {
  const limits = { 'server.ratePerSecond': 1, 'server.rateBurst': 3 };
  const test = await server({ apps: [appWith(openRoute())], config: limits });
  const answers = await Promise.all(Array.from({ length: 30 }, () => test.ask('GET', '/open/default')));
  const refused = answers.filter(({ status }) => status === 429);
  expect(refused.length).toBeGreaterThan(0);
  expect(refused[0]?.headers.get('retry-after')).toMatch(/^\d+$/);
});

test('SEC-5: those who read the public pages of a tenant wait in a line of their own; the tenant goes on', async () => {
  const go = Promise.withResolvers<void>();
  let reading = 0;
  const held = openRoute({
    handle: async () => {
      reading += 1;
      await go.promise;
      return new Reply('text/html', '<p>');
    },
  });
  const test = await server({
    apps: [appWith(held)],
    config: { 'server.tenantConcurrency': 4, 'server.tenantWaiting': 2 },
  });
  onTestFinished(() => go.resolve());
  const ask = await test.as('admin', 'a');
  let refused = 0;
  const strangers = Array.from({ length: 9 }, async () => {
    const { status } = await test.ask('GET', '/open/a');
    if (status === 429) refused += 1;
  });
  await until('their line is full', () => reading + 2 + refused === 9, 20_000);
  expect({ reading, refused }).toEqual({ reading: 2, refused: 5 });
  expect((await ask('GET', '/v1/queues')).status).toBe(200);
  const own = Array.from({ length: 4 }, () => ask('GET', '/open/a'));
  await until('those with a key of the tenant have its turns', () => reading === 6);
  go.resolve();
  for (const { status } of await Promise.all(own)) expect(status).toBe(200);
  await Promise.all(strangers);
});

test('a POST that only reads leaves no line in the audit, and takes no idempotency key', async () => {
  const post = openRoute({ method: 'POST', readsOnly: true });
  const test = await server({ apps: [appWith(post)] });
  const headers = { accept: 'application/json', 'idempotency-key': 'k' };
  for (let n = 0; n < 2; n += 1)
    expect((await test.ask('POST', '/open/default', undefined, headers)).status).toBe(200);
  expect(await test.rows('select 1 from tallyman_server.idempotency_keys')).toEqual([]);
  expect(await test.rows(`select 1 from tallyman_server.audit_events where action = 'open.read'`)).toEqual(
    [],
  );
});

const uploadRoute = (onUpload: () => Promise<void> = async () => {}): AnyRoute =>
  route({
    method: 'POST',
    url: '/v1/files',
    action: 'files.upload',
    summary: 'Takes bytes',
    roles: ['admin'],
    upload: { types: ['text/csv', 'application/json'], maxBytes: 3_000_000 },
    status: 202,
    response: z.object({ bytes: z.number(), first: z.number().nullable(), type: z.string() }),
    handle: async ({ bytes, headers }) => {
      await onUpload();
      if (bytes[0] === 33) throw new TallymanError('VALIDATION_ERROR', 'body: begins with !');
      return { bytes: bytes.length, first: bytes[0] ?? null, type: headers['content-type'] };
    },
  });

test('an upload is the bytes that came, up to its own limit, and once for each idempotency key', async () => {
  const test = await server({ apps: [appWith(uploadRoute())], config: { 'server.maxBodyBytes': 2_000_000 } });
  const ask = await test.as('admin');
  const csv = { 'content-type': 'text/csv' };
  const bytes = Uint8Array.of(0xff, 0, 0xfe, 0x7b);
  const keyed = { ...csv, 'idempotency-key': 'k' };
  const first = await ask('POST', '/v1/files', bytes, keyed);
  expect(first).toMatchObject({ status: 202, body: { bytes: 4, first: 0xff, type: 'text/csv' } });
  const again = await ask('POST', '/v1/files', bytes, keyed);
  expect([again.body, again.headers.get('idempotency-replayed')]).toEqual([first.body, 'true']);
  expect((await ask('POST', '/v1/files', Uint8Array.of(1), keyed)).status).toBe(409);
  // JSON is bytes here, too, and not looked into.
  expect((await ask('POST', '/v1/files', '{ not json')).body).toMatchObject({ bytes: 10 });
  const large = new Uint8Array(2_500_000);
  expect((await ask('POST', '/v1/files', large, csv)).body).toMatchObject({ bytes: 2_500_000 });
  expect((await ask('POST', '/v1/files', new Uint8Array(3_000_001), csv)).body.error.code).toBe(
    'PAYLOAD_TOO_LARGE',
  );
  expect((await ask('POST', '/v1/files', 'x', { 'content-type': 'text/plain' })).status).toBe(415);
  expect((await ask('POST', '/v1/files')).body).toMatchObject({ bytes: 0 });
  expect((await ask('POST', '/v1/files', '!', csv)).body.error.code).toBe('VALIDATION_ERROR');
  expect((await test.ask('POST', '/v1/files', '!', csv)).status).toBe(401);
  const { body: document } = await ask('GET', '/v1/openapi.json');
  expect(Object.keys(document.paths['/v1/files'].post.requestBody.content)).toEqual([
    'text/csv',
    'application/json',
  ]);
});

test('uploads take a bounded amount of memory at once: one more is refused, and taken when there is room', async () => {
  const arrived = Promise.withResolvers<void>();
  const go = Promise.withResolvers<void>();
  let uploads = 0;
  const held = uploadRoute(async () => {
    uploads += 1;
    arrived.resolve();
    await go.promise;
  });
  const test = await server({ apps: [appWith(held)], config: { 'server.uploadMemoryBytes': 3_000_000 } });
  const ask = await test.as('admin');
  const csv = { 'content-type': 'text/csv' };
  const first = ask('POST', '/v1/files', new Uint8Array(2_000_000), csv);
  await arrived.promise;
  expect(await ask('POST', '/v1/files', new Uint8Array(2_000_000), csv)).toMatchObject({
    status: 503,
    body: { error: { code: 'UPLOADS_BUSY' } },
  });
  expect(uploads).toBe(1);
  go.resolve();
  expect((await first).status).toBe(202);
  await until(
    'there is room',
    async () => (await ask('POST', '/v1/files', new Uint8Array(2_000_000), csv)).status === 202,
  );
});

test('SEC-5: beside others a tenant has one large upload in work, and one large file in an answer', async () => {
  const working: string[] = [];
  const gates = new Map<string, PromiseWithResolvers<void>>();
  const work = async (what: string) => {
    working.push(what);
    await gates.get(what)?.promise;
  };
  const upload = route({
    method: 'POST',
    url: '/v1/files',
    action: 'files.upload',
    summary: 'Takes bytes',
    roles: ['admin'],
    upload: { types: ['text/csv'], maxBytes: 3_000_000 },
    response: z.object({}),
    handle: async ({ caller }) => {
      await work(`upload of ${caller.tenantId}`);
      return {};
    },
  });
  const file = route({
    method: 'GET',
    url: '/v1/files/large',
    action: 'files.read',
    summary: 'Answers with bytes',
    roles: ['admin'],
    produces: 'application/octet-stream',
    response: z.string(),
    handle: async ({ caller }) => {
      await work(`file of ${caller.tenantId}`);
      return new Reply('application/octet-stream', new Uint8Array(20_000));
    },
  });
  const test = await server({ apps: [appWith(upload, file)] });
  const [slow, other] = [await test.as('admin', 'slow'), await test.as('admin', 'other')];
  const sent = {
    upload: (ask: typeof slow) =>
      ask('POST', '/v1/files', new Uint8Array(20_000), { 'content-type': 'text/csv' }),
    file: (ask: typeof slow) => ask('GET', '/v1/files/large'),
  };
  for (const what of ['upload', 'file'] as const) {
    const send = sent[what];
    const ours = `${what} of slow`;
    const times = () => working.filter((each) => each === ours).length;
    // An answer is expected to be as large as the last one.
    expect((await send(slow)).status).toBeLessThan(300);
    const gate = Promise.withResolvers<void>();
    gates.set(ours, gate);
    onTestFinished(() => gate.resolve());
    const isThere = async () => expect((await send(other)).status).toBeLessThan(300);
    await isThere();
    const both = [send(slow), send(slow)];
    await until(`the first ${ours} is in work`, () => times() > 1);
    // Small requests come after the second large one, and are answered before it.
    expect((await slow('GET', '/v1/queues')).status).toBe(200);
    await isThere();
    expect(times()).toBe(2);
    gate.resolve();
    for (const { status } of await Promise.all(both)) expect(status).toBeLessThan(300);
    expect(times()).toBe(3);
  }
});

test('a key of a guest names its access, which apps declare; nobody else has one; and it opens nothing else', async () => {
  const test = await server({ apps: [appWith(openRoute())] });
  const admin = await test.as('admin');
  const create = (body: object) => admin('POST', '/v1/keys', { name: 'k', ...body });
  expect((await create({ role: 'guest' })).status).toBe(400);
  expect((await create({ role: 'admin', access: 'parcels.seen' })).status).toBe(400);
  expect((await create({ role: 'guest', access: 'parcels.all' })).status).toBe(400);
  const { status, body } = await create({ role: 'guest', access: 'parcels.seen' });
  expect([status, body.access]).toEqual([201, 'parcels.seen']);
  const { paths } = (await admin('GET', '/v1/openapi.json')).body as {
    paths: Record<string, Record<string, { operationId?: string; security?: object[] }>>;
  };
  const headers = { authorization: `Bearer ${body.key}` };
  const open: string[] = [];
  for (const [path, methods] of Object.entries(paths))
    for (const [method, { security = [] }] of Object.entries(methods)) {
      if (security.length !== 1) continue;
      const answer = await test.ask(method.toUpperCase(), path.replace(/\{\w+\}/g, '1'), undefined, headers);
      if (answer.status !== 403) open.push(`${method} ${path}`);
    }
  expect(open).toEqual([]);
});
