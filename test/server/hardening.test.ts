import { expect, onTestFinished, test } from 'vitest';
import { rulePackage } from '../../src/apps/passports/compile/sample/index.ts';
import { bury, registerKind, server } from './support.ts';

test('SEC-7: what cannot be a key is refused without a query', async () => {
  const scene = await server();
  await scene.as('admin');
  // The first request without a key finds out that there are keys.
  expect((await scene.ask('GET', '/v1/jobs')).status).toBe(401);
  const { database } = scene.tallyman;
  const statements: string[] = [];
  const { query } = database;
  database.query = ((...args: Parameters<typeof query>) => {
    if (/api_keys/.test(String(args[0]))) statements.push(String(args[0]));
    return query.apply(database, args);
  }) as typeof query;
  const id = 'a'.repeat(12);
  for (const key of [
    'x',
    'tlm_',
    `tlm_${id}`,
    `tlm_${id}_short`,
    `TLM_${id}_${'b'.repeat(43)}`,
    "'or1=1--",
    'x'.repeat(256),
  ])
    expect([
      key,
      (await scene.ask('GET', '/v1/jobs', undefined, { authorization: `Bearer ${key}` })).status,
    ]).toEqual([key, 401]);
  expect(statements).toEqual([]);
  const forged = { authorization: `Bearer tlm_${id}_${'b'.repeat(43)}` };
  expect((await scene.ask('GET', '/v1/jobs', undefined, forged)).status).toBe(401);
  expect(statements).toHaveLength(1);
});

test('SEC-7: the stream of a key that is revoked ends; others go on', async () => {
  const scene = await server();
  const open = async (key: string) => {
    const controller = new AbortController();
    onTestFinished(() => controller.abort());
    const response = await fetch(`${scene.url}/v1/stream`, {
      headers: { authorization: `Bearer ${key}` },
      signal: controller.signal,
    });
    expect(response.status).toBe(200);
    const state = { isOver: false };
    const ended = response.text().then(
      () => {
        state.isOver = true;
      },
      () => {},
    );
    return { state, ended };
  };
  const [a, b] = await Promise.all(
    ['a', 'b'].map((name) => scene.keys.create({ tenantId: 'default', name, role: 'auditor' })),
  );
  if (!a || !b) throw new Error('no keys');
  const [first, second] = [await open(a.key), await open(b.key)];
  await scene.keys.revoke(a.apiKey.id);
  await first.ended;
  expect([first.state.isOver, second.state.isOver]).toEqual([true, false]);
});

test('SEC-8: JSON of a hundred thousand levels is a bad request; what is deep only in a text is not', async () => {
  const scene = await server();
  const ask = await scene.as('admin');
  const deep = `{"kind":"noop","payload":${'['.repeat(100_000)}${']'.repeat(100_000)}}`;
  for (const [method, path] of [
    ['POST', '/v1/jobs'],
    ['POST', '/v1/events'],
  ] as const)
    expect(await ask(method, path, deep)).toMatchObject({
      status: 400,
      body: { error: { code: 'VALIDATION_ERROR', message: 'body: is more than 100 levels deep' } },
    });
  const event = { event_type: 'a.b', aggregate_type: 'a', aggregate_id: '1' };
  for (const text of [`${'['.repeat(500)}"\\`, `\\"${'{'.repeat(500)}`, `\\\\${'['.repeat(500)}`])
    expect([text, (await ask('POST', '/v1/events', { ...event, payload: { text } })).status]).toEqual([
      text,
      202,
    ]);
  const behindText = `{"text":"\\\\\\"","deep":${'['.repeat(101)}${']'.repeat(101)}}`;
  expect((await ask('POST', '/v1/events', behindText)).body.error.message).toMatch(/100 levels/);
});

test('SEC-8: a body of which everything is wrong, millions of times, is a bad request that says so in a line', async () => {
  const scene = await server();
  const ask = await scene.as('admin');
  const many = Object.fromEntries(Array.from({ length: 150_000 }, (_, i) => [`k${i}`, 1]));
  const [small] = rulePackage.testCases;
  for (const [method, path, body] of [
    ['POST', '/v1/stores/s1/products', { products: [{ sku: 'a', attributes: many }] }],
    ['POST', '/v1/webhooks', { url: 'https://a.example', headers: many }],
    ['POST', '/v1/webhooks', { url: 'https://a.example', filter: [{ path: Array(300_000).fill(1) }] }],
    ['POST', '/v1/passports/rules', { package: { ...rulePackage, rules: Array(600_000).fill({}) } }],
    [
      'POST',
      '/v1/passports/rules',
      { package: { ...rulePackage, testCases: [{ ...small, facts: Array(600_000).fill({}) }] } },
    ],
  ] as const) {
    const answer = await ask(method, path, body);
    expect([path, answer.status, answer.body.error.code]).toEqual([path, 400, 'VALIDATION_ERROR']);
    expect(JSON.stringify(answer.body).length).toBeLessThan(1_000);
  }
});

test('SEC-8: the type of an event is a token', async () => {
  const scene = await server();
  const ask = await scene.as('admin');
  const emit = async (event_type: string) =>
    (await ask('POST', '/v1/events', { event_type, aggregate_type: 'a', aggregate_id: '1', payload: {} }))
      .status;
  for (const type of ['a\r\nx-evil: 1', 'a\nb', 'a b', 'é', '"a"', ' a'])
    expect([type, await emit(type)]).toEqual([type, 400]);
  for (const type of ['pallet.moved', 'a', 'A_b-c:d/1'])
    expect([type, await emit(type)]).toEqual([type, 202]);
});

test('SEC-8: every answer says that it is data; the documentation runs its own scripts alone', async () => {
  const scene = await server();
  for (const path of ['/v1/health/live', '/v1/jobs', '/nothing', '/v1/openapi.json']) {
    const { headers } = await scene.ask('GET', path);
    expect([path, headers.get('content-security-policy')]).toEqual([
      path,
      "default-src 'none'; frame-ancestors 'none'",
    ]);
    expect(headers.get('x-content-type-options')).toBe('nosniff');
    expect(headers.get('x-frame-options')).toBe('DENY');
    expect(headers.get('referrer-policy')).toBe('no-referrer');
  }
  const page = await scene.ask('GET', '/v1/docs');
  const policy = page.headers.get('content-security-policy') ?? '';
  expect(page.status).toBe(200);
  expect(policy).toMatch(/script-src 'self'/);
  expect(policy).toContain("frame-ancestors 'none'");
  expect(policy).not.toMatch(/script-src[^;]*unsafe/);
});

test('SEC-8: a tenant learns neither the code that failed nor the machine that it ran on; the operator does', async () => {
  const scene = await server();
  await registerKind(scene, 'noop');
  for (const [tenantId, stack] of [
    ['acme', null],
    ['default', 'at /srv/app.ts:1'],
  ] as const) {
    const ask = await scene.as('admin', tenantId);
    const { id } = (await ask('POST', '/v1/jobs', { kind: 'noop', lane: 'l' })).body;
    await bury(scene, id);
    const error = { code: 'X', message: 'it died', stack: 'at /srv/app.ts:1', worker: 'host-1' };
    await scene.rows(
      'update tallyman.dead_letters set last_error = (last_error::jsonb || $2::jsonb)::json where id = $1',
      [id, JSON.stringify(error)],
    );
    const worker = tenantId === 'default' ? 'host-1' : null;
    const seen = { code: 'X', message: 'it died', stack, worker };
    for (const path of [`/v1/jobs/${id}`, `/v1/dead-letters/${id}`])
      expect((await ask('GET', path)).body.last_error).toMatchObject(seen);
    for (const path of ['/v1/jobs?status=DEAD_LETTER', '/v1/dead-letters'])
      expect((await ask('GET', path)).body.items[0].last_error).toMatchObject(seen);
  }
});
