import Fastify from 'fastify';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { type AnyRoute, Reply, route } from '../../src/host/route.ts';
import { type RouteFrame, register } from '../../src/server/http/register.ts';
import { parcelsApp } from '../host/sample/app.ts';
import { registerKind, server } from './support.ts';

const count = async (test: Awaited<ReturnType<typeof server>>) =>
  Number((await test.rows<{ n: string }>('select count(*) as n from tallyman.jobs'))[0]?.n);

test('the same request with the same key is done once and answered alike', async () => {
  const test = await server();
  const ask = await test.as('producer');
  await registerKind(test, 'noop');
  const enqueue = () =>
    ask('POST', '/v1/jobs', { kind: 'noop', payload: { i: 1 } }, { 'idempotency-key': 'k1' });
  const first = await enqueue();
  const second = await enqueue();
  expect(first.status).toBe(201);
  expect(second).toMatchObject({ status: 201, body: first.body });
  expect([first, second].map(({ headers }) => headers.get('idempotency-replayed'))).toEqual([null, 'true']);
  expect(await count(test)).toBe(1);
});

test('another request with the same key is a conflict', async () => {
  const test = await server();
  const ask = await test.as('producer');
  await registerKind(test, 'noop');
  const headers = { 'idempotency-key': 'k1' };
  await ask('POST', '/v1/jobs', { kind: 'noop' }, headers);
  for (const [path, body] of [
    ['/v1/jobs', { kind: 'noop', payload: { i: 2 } }],
    ['/v1/jobs/batch', { jobs: [{ kind: 'noop' }] }],
  ] as const)
    expect(await ask('POST', path, body, headers)).toMatchObject({
      status: 409,
      body: { error: { code: 'IDEMPOTENCY_CONFLICT' } },
    });
  expect(await count(test)).toBe(1);
});

test('twenty at the same time are one', async () => {
  const test = await server();
  const ask = await test.as('producer');
  await registerKind(test, 'noop');
  const answers = await Promise.all(
    Array.from({ length: 20 }, () =>
      ask('POST', '/v1/jobs', { kind: 'noop' }, { 'idempotency-key': 'same' }),
    ),
  );
  expect(new Set(answers.map(({ status, body }) => `${status} ${body.id}`)).size).toBe(1);
  expect(await count(test)).toBe(1);
});

test('a refused write leaves nothing, and may be tried again under its key', async () => {
  const test = await server();
  const ask = await test.as('producer');
  const enqueue = () => ask('POST', '/v1/jobs', { kind: 'noop' }, { 'idempotency-key': 'k1' });
  expect((await enqueue()).status).toBe(422);
  await registerKind(test, 'noop');
  expect((await enqueue()).status).toBe(201);
});

test('API-1: a key has at most 255 bytes in UTF-8: a longer one is refused before it gets to the database', async () => {
  const test = await server();
  const ask = await test.as('producer');
  await registerKind(test, 'noop');
  const under = (key: string) => ask('POST', '/v1/jobs', { kind: 'noop' }, { 'idempotency-key': key });
  expect((await under('é'.repeat(127))).status).toBe(201);
  expect((await under(`${'é'.repeat(127)}x`)).status).toBe(201);
  for (const tooLong of ['é'.repeat(128), 'é'.repeat(200), 'x'.repeat(256)])
    expect(await under(tooLong)).toMatchObject({
      status: 400,
      body: {
        error: { code: 'VALIDATION_ERROR', message: expect.stringMatching(/^headers.*255 (bytes|char)/) },
      },
    });
  expect(await count(test)).toBe(2);
});

test('a key is its tenant’s, and a secret in an answer is not kept in the clear', async () => {
  const test = await server();
  const [a, b] = [await test.as('admin', 'a'), await test.as('admin', 'b')];
  const headers = { 'idempotency-key': 'k1' };
  const made = await a('POST', '/v1/keys', { name: 'x', role: 'auditor' }, headers);
  expect((await a('POST', '/v1/keys', { name: 'x', role: 'auditor' }, headers)).body.key).toBe(made.body.key);
  expect((await b('POST', '/v1/keys', { name: 'x', role: 'auditor' }, headers)).body.key).not.toBe(
    made.body.key,
  );
  const kept = await test.rows<{ body: string }>('select body from tallyman_server.idempotency_keys');
  expect(kept).toHaveLength(2);
  expect(JSON.stringify(kept)).not.toContain(made.body.key);
});

test('API-1: connections killed between the write and its answer: asked again, it is done once', async () => {
  const test = await server();
  const ask = await test.as('producer');
  await registerKind(test, 'noop');
  // The connections die under the requests: some writes commit unseen, some do not.
  // A storm without end would let nothing through where connecting takes longer than the time between two kills.
  let stop = false;
  const storm = (async () => {
    for (let kills = 0; !stop && kills < 50; kills += 1) {
      await test
        .rows(
          `select pg_terminate_backend(pid) from pg_stat_activity
          where datname = current_database() and pid <> pg_backend_pid() and random() < 0.3`,
        )
        .catch(() => {});
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  })();
  const insist = async (key: string): Promise<string> => {
    for (;;) {
      const answer = await ask(
        'POST',
        '/v1/jobs',
        { kind: 'noop', payload: { key } },
        { 'idempotency-key': key },
      );
      if (answer.status === 201) return answer.body.id;
      expect(answer.status).toBeGreaterThanOrEqual(500);
    }
  };
  const ids = await Promise.all(Array.from({ length: 60 }, (_, i) => insist(`key-${i}`)));
  stop = true;
  await storm;
  expect(new Set(ids).size).toBe(60);
  expect(await count(test)).toBe(60);
});

/** A write that leaves a row, and answers with this. */
const writing = (answer: () => unknown, more: Partial<AnyRoute> = {}): AnyRoute =>
  route({
    method: 'POST',
    url: '/v1/written',
    action: 'written.make',
    summary: 'Writes something',
    roles: ['admin'],
    response: z.unknown(),
    handle: async ({ scope }) => {
      await scope.query(`insert into tallyman.queues (name) values ('written')`);
      return answer();
    },
    ...more,
  } as AnyRoute);

test('API-1: a write that would answer anything but JSON is refused when the server starts', () => {
  const start = (given: AnyRoute) => () => register(Fastify(), given, {} as RouteFrame);
  const answer = () => new Reply('image/png', new Uint8Array());
  for (const produces of ['image/png', ['application/json', 'text/csv']])
    expect(start(writing(answer, { produces }))).toThrow(
      /POST \/v1\/written \(written\.make\) writes and declares that it produces .*Idempotency-Key/,
    );
  expect(start(writing(answer, { produces: 'image/png', readsOnly: true }))).not.toThrow();
});

test('API-1: a write that answers with a Reply or bytes without saying so is rolled back, with a key and without', async () => {
  let answer: unknown;
  const routes = async () => [writing(() => answer)];
  const test = await server({ apps: [{ ...parcelsApp, routes }] });
  const ask = await test.as('admin');
  const written = () => test.rows(`select 1 from tallyman.queues where name = 'written'`);
  const keyed: readonly Record<string, string>[] = [{}, { 'idempotency-key': 'k1' }];
  for (const wrong of [new Reply('application/json', '{}'), Buffer.from('{}'), new Uint8Array(2)])
    for (const headers of keyed) {
      answer = wrong;
      expect(await ask('POST', '/v1/written', undefined, headers)).toMatchObject({
        status: 500,
        body: { error: { code: 'INTERNAL' } },
      });
    }
  expect(await written()).toEqual([]);
  expect(await test.rows('select 1 from tallyman_server.idempotency_keys')).toEqual([]);
  answer = { fine: true };
  const headers = { 'idempotency-key': 'k1' };
  expect((await ask('POST', '/v1/written', undefined, headers)).body).toEqual(answer);
  const again = await ask('POST', '/v1/written', undefined, headers);
  expect([again.body, again.headers.get('idempotency-replayed')]).toEqual([answer, 'true']);
  expect(await written()).toHaveLength(1);
});
