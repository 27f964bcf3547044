import { expect, test } from 'vitest';
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
