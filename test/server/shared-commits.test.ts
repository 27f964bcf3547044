import { createHash } from 'node:crypto';
import pg from 'pg';
import { expect, test, vi } from 'vitest';
import { enterTenant } from '../../src/engine/database/tenant.ts';
import { until } from '../support/until.ts';
import { registerKind, server, type TestServer } from './support.ts';

const countOf = async ({ rows }: TestServer, sql: string): Promise<number> =>
  Number((await rows<{ n: string }>(`select count(*) as n from ${sql}`))[0]?.n);

const jobsOf = (test: TestServer) => countOf(test, 'tallyman.jobs');

/** How many transactions wrote these rows. */
const transactionsOf = async ({ rows }: TestServer, table: string): Promise<number> =>
  Number((await rows<{ n: string }>(`select count(distinct xmin::text) as n from ${table}`))[0]?.n);

/** Commits take their time, so that requests arrive while one is under way, however quick or slow the machine is. */
const slowCommits = ({ rows }: TestServer) =>
  rows(`
    create function pause() returns trigger language plpgsql as $$ begin perform pg_sleep(0.3); return null; end $$;
    create trigger pause after insert on tallyman_server.audit_events for each statement execute function pause()`);

/** Holds the lane of a job in an open transaction until the function that it returns is called. */
async function holdLane(test: TestServer, lane: string): Promise<() => Promise<void>> {
  const client = await test.tallyman.database.dedicated();
  await client.query('begin');
  await client.query(`select tallyman.enqueue('noop', lane => $1, tenant_id => 'default')`, [lane]);
  return async () => {
    await client.query('commit');
    await client.end();
  };
}

test('API-1: requests that come together share commits, each with its own job, audit line and answer', async () => {
  const test = await server();
  const ask = await test.as('producer');
  await registerKind(test, 'noop');
  await ask('POST', '/v1/jobs', { kind: 'noop' });
  await slowCommits(test);
  const answers = await Promise.all(
    Array.from({ length: 100 }, (_, i) =>
      ask('POST', '/v1/jobs', { kind: 'noop', payload: { i } }, { 'x-correlation-id': `c${i}` }),
    ),
  );
  expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([201]));
  const jobs = await test.rows<{ id: string; payload: { i?: number }; correlation_id: string }>(
    'select id, payload, correlation_id from tallyman.jobs',
  );
  const byId = new Map(jobs.map((job) => [job.id, job]));
  for (const [i, { body }] of answers.entries())
    expect(byId.get(body.id)).toMatchObject({ payload: { i }, correlation_id: `c${i}` });
  const audit = await test.rows<{ correlation_id: string; action: string; status: number }>(
    `select correlation_id, action, status from tallyman_server.audit_events where correlation_id ~ '^c[0-9]+$'`,
  );
  expect(new Set(audit.map((line) => line.correlation_id)).size).toBe(100);
  expect(audit).toHaveLength(100);
  expect(audit[0]).toMatchObject({ action: 'jobs.enqueue', status: 201 });
  // One at a time they would be 101.
  expect(await transactionsOf(test, 'tallyman.jobs')).toBeLessThan(60);
  expect(await transactionsOf(test, 'tallyman_server.audit_events')).toBeLessThan(60);
});

test('API-1: a batch is one statement: 1,000 jobs in one transaction, in the order given', async () => {
  const test = await server();
  const ask = await test.as('producer');
  await registerKind(test, 'noop');
  const jobs = Array.from({ length: 1000 }, (_, i) => ({
    kind: 'noop',
    payload: { i },
    ...(i % 3 === 0 && { lane: `l${i % 7}` }),
  }));
  const { status, body } = await ask('POST', '/v1/jobs/batch', { jobs });
  expect(status).toBe(201);
  const rows = await test.rows<{ id: string; payload: { i: number } }>(
    'select id, payload from tallyman.jobs order by id',
  );
  expect(rows.map(({ payload }) => payload.i)).toEqual(jobs.map((_, i) => i));
  expect(body.ids).toEqual(rows.map(({ id }) => id));
  expect(await transactionsOf(test, 'tallyman.jobs')).toBe(1);
  // `cmin` counts the statements of a transaction: the rows of one have the same.
  expect(await test.rows('select distinct cmin::text from tallyman.jobs')).toHaveLength(1);
  expect(await countOf(test, 'tallyman_server.audit_events')).toBe(1);
});

test('SEC-5, API-1: a batch of 500 jobs sends as many statements as a batch of one', async () => {
  const test = await server();
  const ask = await test.as('producer');
  await registerKind(test, 'noop');
  /** What goes to PostgreSQL during a batch: on the connection that writes it, and on all of them. */
  const statementsOf = async (count: number) => {
    const sent: { readonly client: unknown; readonly text: string }[] = [];
    const original = pg.Client.prototype.query;
    const spy = vi.spyOn(pg.Client.prototype, 'query').mockImplementation(function (
      this: pg.Client,
      ...args: unknown[]
    ) {
      const [first] = args as [string | { readonly text?: string }];
      sent.push({ client: this, text: typeof first === 'string' ? first : (first.text ?? '') });
      return Reflect.apply(original, this, args) as never;
    });
    try {
      const jobs = Array.from({ length: count }, (_, i) => ({ kind: 'noop', payload: { i } }));
      expect((await ask('POST', '/v1/jobs/batch', { jobs })).status).toBe(201);
    } finally {
      spy.mockRestore();
    }
    const writer = sent.find(({ text }) => text.includes('enqueue_requests'))?.client;
    return { own: sent.filter(({ client }) => client === writer).map(({ text }) => text), all: sent.length };
  };
  await statementsOf(1);
  const one = await statementsOf(1);
  const many = await statementsOf(500);
  expect(one.own).toHaveLength(4);
  expect(many.own).toEqual(one.own);
  // What runs beside it, such as heartbeats, is counted, too: one statement for each job would be 500.
  expect(many.all).toBeLessThan(50);
  expect(await jobsOf(test)).toBe(502);
});

test('API-1: a bad request among good ones is refused alone', async () => {
  const test = await server({ config: { 'jobs.maxPayloadBytes': 1000 } });
  const ask = await test.as('producer');
  await registerKind(test, 'noop');
  await test.rows(`select tallyman.register_kind('inner')`);
  // Refused by the database itself, in the middle of a shared statement.
  await test.rows(
    `alter table tallyman.jobs add constraint no_bombs check (payload::text not like '%bomb%')`,
  );
  const bodies = Array.from({ length: 60 }, (_, i) => {
    if (i === 7) return { kind: 'nobody-knows' };
    if (i === 17) return { kind: 'inner' };
    if (i === 27) return { kind: 'noop', payload: { text: 'x'.repeat(2000) } };
    if (i === 37 || i === 38) return { kind: 'noop', payload: { i, text: 'bomb' } };
    return { kind: 'noop', payload: { i } };
  });
  const answers = await Promise.all(bodies.map((body) => ask('POST', '/v1/jobs', body)));
  const others = answers.flatMap(({ status }, i) => (status === 201 ? [] : [`${i} ${status}`]));
  expect(others).toEqual(['7 422', '17 403', '27 413', '37 500', '38 500']);
  expect(await jobsOf(test)).toBe(55);
  await test.server.stop();
  expect(await countOf(test, `tallyman_server.audit_events where outcome = 'done'`)).toBe(55);
});

test('API-1: requests of many tenants share a commit, and each tenant has its own', async () => {
  const test = await server();
  await registerKind(test, 'noop');
  const tenants = ['a', 'b', 'c', 'd', 'e'];
  const asks = await Promise.all(
    tenants.map(async (tenant) => ({ tenant, ask: await test.as('operator', tenant) })),
  );
  // The first job of a queue makes its stream, and those that come meanwhile would wait for that commit by themselves.
  await test.rows(`select tallyman.streams_of('{default}', '{2}')`);
  await slowCommits(test);
  const made = await Promise.all(
    Array.from({ length: 20 }, (_, i) =>
      asks.map(async ({ tenant, ask }) => {
        const headers = { 'idempotency-key': `k${i}` };
        const { body } = await ask('POST', '/v1/jobs', { kind: 'noop', payload: { tenant } }, headers);
        return { tenant, id: body.id as string };
      }),
    ).flat(),
  );
  const jobs = await test.rows<{ id: string; tenant_id: string; payload: { tenant: string } }>(
    'select id, tenant_id, payload from tallyman.jobs',
  );
  expect(jobs).toHaveLength(100);
  const byId = new Map(jobs.map((job) => [job.id, job]));
  for (const { tenant, id } of made)
    expect(byId.get(id)).toMatchObject({ tenant_id: tenant, payload: { tenant } });
  const audit = await test.rows<{ tenant_id: string; n: number }>(
    'select tenant_id, count(*)::int as n from tallyman_server.audit_events group by 1 order by 1',
  );
  expect(audit).toEqual(tenants.map((tenant_id) => ({ tenant_id, n: 20 })));
  expect(await transactionsOf(test, 'tallyman.jobs')).toBeLessThan(60);
  for (const { tenant, ask } of asks) {
    const { body } = await ask('GET', '/v1/jobs?limit=200');
    expect(new Set(body.items.map((job: { payload: { tenant: string } }) => job.payload.tenant))).toEqual(
      new Set([tenant]),
    );
  }
});

test('API-1: the role and the name of the tenant bind a shared statement, whatever it says', async () => {
  const test = await server();
  const ask = await test.as('producer', 'a');
  await registerKind(test, 'noop');
  expect((await ask('POST', '/v1/jobs', { kind: 'noop' })).status).toBe(201);
  const { database } = test.tallyman;
  const [kind] = await test.rows<{ row: string }>(
    `select to_json(k)::text as row from tallyman.kinds k where name = 'noop'`,
  );
  const write = (tenant: string) =>
    database.transaction(async (tx) => {
      await tx.query(enterTenant(database, 'a'));
      return tx.query('select * from tallyman_server.enqueue_requests($1, $2, $3, $4, $5, $6, true, 0)', [
        tenant,
        JSON.stringify([{ first: 1, last: 1, actor: 'x', action: 'jobs.enqueue', status: 201 }]),
        `[${kind?.row}]`,
        ['default'],
        [2],
        JSON.stringify([{ s: 1, k: 'noop', p: {}, m: 5, t: tenant, c: 'c' }]),
      ]);
    });
  expect((await write('a')).rows).toMatchObject([{ outcome: 'done' }]);
  await expect(write('b')).rejects.toThrow(/row-level security/);
});

test('API-1: one key twenty times in one batch is one job; another request with it is a conflict', async () => {
  const test = await server();
  const ask = await test.as('producer');
  await registerKind(test, 'noop');
  const headers = { 'idempotency-key': 'same' };
  const answers = await Promise.all([
    ...Array.from({ length: 20 }, () => ask('POST', '/v1/jobs', { kind: 'noop', payload: 1 }, headers)),
    ask('POST', '/v1/jobs', { kind: 'noop', payload: 2 }, headers),
    ...Array.from({ length: 20 }, () => ask('POST', '/v1/jobs', { kind: 'noop', payload: 3 })),
  ]);
  const statuses = answers.map(({ status }) => status);
  const keyed = answers.slice(0, 21);
  // Which of the two requests came first is open; the other kind is refused.
  const won = keyed.filter(({ status }) => status === 201);
  expect(new Set(won.map(({ body }) => body.id)).size).toBe(1);
  expect(won.filter(({ headers }) => headers.get('idempotency-replayed') === null)).toHaveLength(1);
  expect(new Set(statuses)).toEqual(new Set([201, 409]));
  expect(await jobsOf(test)).toBe(21);
  expect(await countOf(test, `tallyman_server.audit_events where outcome = 'done'`)).toBe(21);
});

test('API-1: a lane that another transaction holds keeps only its own requests waiting', async () => {
  const test = await server();
  const ask = await test.as('producer');
  await registerKind(test, 'noop');
  // The queue is there; otherwise all would wait for the transaction that makes it.
  await ask('POST', '/v1/jobs', { kind: 'noop', lane: 'held' });
  const release = await holdLane(test, 'held');
  let waiting = 2;
  const enqueued = (body: object, path = '/v1/jobs') =>
    ask('POST', path, body, { 'idempotency-key': JSON.stringify(body) }).then((answer) => {
      waiting -= 1;
      return answer;
    });
  const held = [
    enqueued({ kind: 'noop', lane: 'held', payload: 1 }),
    enqueued({ jobs: [{ kind: 'noop' }, { kind: 'noop', lane: 'held' }] }, '/v1/jobs/batch'),
  ];
  const others = await Promise.all(
    Array.from({ length: 50 }, (_, i) =>
      ask('POST', '/v1/jobs', { kind: 'noop', ...(i % 2 && { lane: `free-${i}` }) }),
    ),
  );
  expect(new Set(others.map(({ status }) => status))).toEqual(new Set([201]));
  expect(waiting).toBe(2);
  // Nothing of those that wait is written: no job of the batch, no key, no audit line.
  expect(await jobsOf(test)).toBe(51);
  expect(await countOf(test, 'tallyman_server.idempotency_keys')).toBe(0);
  expect(await countOf(test, 'tallyman_server.audit_events')).toBe(51);
  await release();
  expect((await Promise.all(held)).map(({ status }) => status)).toEqual([201, 201]);
  expect(await jobsOf(test)).toBe(55);
  expect(await countOf(test, 'tallyman_server.idempotency_keys')).toBe(2);
});

test('API-1: large payloads beside small ones are stored as they are', async () => {
  const test = await server();
  const ask = await test.as('producer');
  await registerKind(test, 'noop');
  const sizes = [900_000, 10, 100_000, 20, 17_000, 15_000, 30];
  const answers = await Promise.all(
    sizes.map((size) => ask('POST', '/v1/jobs', { kind: 'noop', payload: { text: 'ü'.repeat(size / 2) } })),
  );
  for (const [i, { status, body }] of answers.entries()) {
    expect(status).toBe(201);
    const [row] = await test.rows<{ size: number }>(
      `select octet_length(payload ->> 'text') as size from tallyman.jobs where id = $1`,
      [body.id],
    );
    expect(row?.size).toBe(sizes[i]);
  }
});

test('API-1: a kind that changes is used as it is now, one that became internal is refused', async () => {
  const test = await server();
  const ask = await test.as('producer');
  await registerKind(test, 'noop');
  const enqueue = () => ask('POST', '/v1/jobs', { kind: 'noop' });
  const place = async (id: string) =>
    (await test.tallyman.jobs.get(id)) ?? { queue: undefined, maxAttempts: undefined };
  expect(await place((await enqueue()).body.id)).toMatchObject({ queue: 'default', maxAttempts: 5 });
  await test.rows(
    `select tallyman.register_kind('noop', queue => 'elsewhere', max_attempts => 9, is_public => true)`,
  );
  expect(await place((await enqueue()).body.id)).toMatchObject({ queue: 'elsewhere', maxAttempts: 9 });
  await test.rows(`select tallyman.register_kind('noop')`);
  expect(await enqueue()).toMatchObject({ status: 403, body: { error: { code: 'INTERNAL_KIND' } } });
  await registerKind(test, 'noop');
  expect((await enqueue()).status).toBe(201);
});

test('API-2: a taken dedupe key is told: `existing`, alone and in a batch', async () => {
  const test = await server();
  const ask = await test.as('producer');
  await registerKind(test, 'noop');
  const job = { kind: 'noop', dedupe_key: 'parcel-1' };
  const first = await ask('POST', '/v1/jobs', job);
  expect(first).toMatchObject({ status: 201, body: { existing: false } });
  expect((await ask('POST', '/v1/jobs', job)).body).toEqual({ id: first.body.id, existing: true });
  const { body } = await ask('POST', '/v1/jobs/batch', { jobs: [{ kind: 'noop' }, job] });
  expect(body).toEqual({ ids: [expect.any(String), first.body.id], existing: [false, true] });
  expect(await jobsOf(test)).toBe(2);
});

test('API-1: a key that was revoked is refused from the next request on, under load', async () => {
  const test = await server();
  await registerKind(test, 'noop');
  const { key, apiKey } = await test.keys.create({ tenantId: 'default', name: 'k', role: 'producer' });
  const ask = () =>
    test
      .ask('POST', '/v1/jobs', { kind: 'noop' }, { authorization: `Bearer ${key}` })
      .then(({ status }) => status);
  let revoked = false;
  const loops = Array.from({ length: 16 }, async () => {
    const late: number[] = [];
    for (;;) {
      const isLate = revoked;
      const status = await ask();
      if (isLate) late.push(status);
      else expect([201, 401]).toContain(status);
      if (late.length === 3) return late;
    }
  });
  await test.rows('select pg_sleep(0.2)');
  await test.keys.revoke(apiKey.id);
  revoked = true;
  expect(new Set((await Promise.all(loops)).flat())).toEqual(new Set([401]));
});

test('API-1: a connection lost during the commit: with a key it is done once, without one the outcome is unknown', async () => {
  const test = await server();
  const ask = await test.as('producer');
  await registerKind(test, 'noop');
  const locker = await test.tallyman.database.dedicated();
  await locker.query('begin; lock table tallyman_server.audit_events in access exclusive mode');
  /** Once, when its statement waits: a request with a key is written again only so many times. */
  const loseConnection = () =>
    until('a commit lost its connection', async () => {
      const lost = await test.rows(
        `select pg_terminate_backend(pid) from pg_stat_activity
          where datname = current_database() and wait_event_type = 'Lock' and query like '%enqueue_requests%'`,
      );
      return lost.length > 0;
    });
  const plain = ask('POST', '/v1/jobs', { kind: 'noop', payload: 'plain' });
  await loseConnection();
  expect(await plain).toMatchObject({ status: 503, body: { error: { code: 'OUTCOME_UNKNOWN' } } });
  const keyed = ask('POST', '/v1/jobs', { kind: 'noop', payload: 'keyed' }, { 'idempotency-key': 'k' });
  await loseConnection();
  await locker.query('commit');
  await locker.end();
  expect((await keyed).status).toBe(201);
  const jobs = await test.rows<{ payload: string }>('select payload from tallyman.jobs');
  expect(jobs).toEqual([{ payload: 'keyed' }]);
});

test('API-1: an answer that version 0.2 sealed is given to the same request again', async () => {
  const test = await server();
  const ask = await test.as('producer');
  await registerKind(test, 'noop');
  const request = JSON.stringify(['POST', '/v1/jobs', { kind: 'noop', payload: { i: 1 } }]);
  await test.rows(
    `insert into tallyman_server.idempotency_keys (tenant_id, key, digest, status, body) values ('default', 'k', $1, 201, $2)`,
    [createHash('sha256').update(request).digest(), test.box.seal('{"id":"4711"}', 'answer:default:k')],
  );
  const headers = { 'idempotency-key': 'k' };
  const answer = await ask('POST', '/v1/jobs', { kind: 'noop', payload: { i: 1 } }, headers);
  expect(answer).toMatchObject({ status: 201, body: { id: '4711' } });
  expect(answer.headers.get('idempotency-replayed')).toBe('true');
  expect((await ask('POST', '/v1/jobs', { kind: 'noop' }, headers)).status).toBe(409);
  expect(await jobsOf(test)).toBe(0);
});
