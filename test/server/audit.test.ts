import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { expect, onTestFinished, test } from 'vitest';
import { SecretBox } from '../../src/secrets/box.ts';
import { type AuditEvent, AuditTrail } from '../../src/server/access/audit.ts';
import { AuditChain } from '../../src/server/audit/chain.ts';
import { addSeal, sealAudit } from '../../src/server/audit/seals.ts';
import { headText, parseHead, verifyAudit } from '../../src/server/audit/verify.ts';
import { start } from '../cli/support.ts';
import { until } from '../support/until.ts';
import { registerKind, server, type TestServer } from './support.ts';

const seal = ({ tallyman, box }: TestServer, keepDays = 0) =>
  sealAudit(tallyman.database, box, { keepDays, signal: AbortSignal.timeout(60_000) });

const verify = ({ tallyman, box }: TestServer, head?: string) =>
  verifyAudit(tallyman.database, box, head === undefined ? {} : { head: parseHead(head) });

/** What somebody does who owns the tables. */
async function force({ tallyman }: TestServer, sql: string): Promise<void> {
  const tables = ['tallyman_server.audit_events', 'tallyman_server.audit_seals'];
  await tallyman.database.transaction(async (tx) => {
    for (const table of tables) await tx.query(`alter table ${table} disable trigger keep_audit`);
    await tx.query(sql);
    for (const table of tables) await tx.query(`alter table ${table} enable trigger keep_audit`);
  });
}

/** Seals only where a test says so. */
const unsealed = () => server({ config: { 'server.auditSealSeconds': 86_400 } });

/** A server with audit events in several seals. */
async function sealed(): Promise<TestServer> {
  const scene = await unsealed();
  const ask = await scene.as('admin');
  for (let nth = 0; nth < 3; nth += 1) {
    for (const name of ['a', 'b', 'c'])
      expect((await ask('POST', '/v1/keys', { name: `${name}${nth}`, role: 'auditor' })).status).toBe(201);
    expect(await seal(scene)).toBe(3);
  }
  return scene;
}

test('SEC-6: an event names what was made; the audit is sealed and found whole', async () => {
  const scene = await sealed();
  expect(await seal(scene)).toBe(0);
  const keys = await scene.rows<{ id: string }>('select id from tallyman_server.api_keys');
  const made = await scene.rows<{ resource: string }>(
    `select resource from tallyman_server.audit_events where action = 'keys.create'`,
  );
  expect(made).toHaveLength(9);
  for (const { resource } of made) expect(keys.map(({ id }) => id)).toContain(resource);
  expect(await verify(scene)).toMatchObject({ isIntact: true, seals: 3, events: 9, unsealed: 0, pruned: 0 });
});

test.each([
  [
    'a changed column',
    `update tallyman_server.audit_events set actor = 'key:x' where id = 5`,
    /events 4 to 6.*changed/,
  ],
  [
    'a deleted event',
    'delete from tallyman_server.audit_events where id = 4',
    /events 4 to 6.*1 of 3 are missing/,
  ],
  [
    'an event that was slipped in',
    `insert into tallyman_server.audit_events (id, tenant_id, actor, action, outcome, status)
       overriding system value values (-1, 'default', 'a', 'b', 'done', 200)`,
    /events to 3.*1 were added later/,
  ],
  [
    'an event in the place of another',
    `with gone as (delete from tallyman_server.audit_events where id = 9 returning *)
       insert into tallyman_server.audit_events overriding system value
       select 9, tenant_id, at + interval '1 microsecond', actor, action, resource, outcome, status, code, correlation_id, address, times
         from gone`,
    /events 7 to 9.*changed/,
  ],
  [
    'a seal that was made to fit',
    `update tallyman_server.audit_seals set digest = (select digest from tallyman_server.audit_seals where seq = 1) where seq = 2`,
    /seal 2 was changed/,
  ],
  ['a seal in the middle', 'delete from tallyman_server.audit_seals where seq = 2', /seal 2 is missing/],
  [
    'events deleted as if by retention',
    `update tallyman_server.audit_seals set pruned = digest where seq = 1`,
    /seal 1 were deleted, and not by retention/,
  ],
])('SEC-6: %s is found', async (_, sql, problem) => {
  const scene = await sealed();
  await force(scene, sql);
  const { isIntact, problems } = await verify(scene);
  expect(isIntact).toBe(false);
  expect(problems.join('\n')).toMatch(problem);
});

test('SEC-6: a cut end is found with a head that was noted, and not without', async () => {
  const scene = await sealed();
  const { head } = await verify(scene);
  const noted = headText(head ?? { seq: '', hash: '' });
  await force(scene, 'delete from tallyman_server.audit_seals where seq = 3');
  await force(scene, 'delete from tallyman_server.audit_events where id > 6');
  expect((await verify(scene)).isIntact).toBe(true);
  expect((await verify(scene, noted)).problems).toEqual([
    'seal 3 that you noted is gone: the end of the audit was cut off',
  ]);
});

test('SEC-6: nobody but retention changes the audit', async () => {
  const scene = await sealed();
  for (const sql of [
    `update tallyman_server.audit_events set actor = 'x'`,
    'delete from tallyman_server.audit_events',
    'truncate tallyman_server.audit_events',
    'delete from tallyman_server.audit_seals',
  ])
    await expect(scene.rows(sql)).rejects.toThrow(/the audit is for adding and reading/);
  expect(await seal(scene, 1)).toBe(0);
  expect(await verify(scene)).toMatchObject({ isIntact: true, events: 9, pruned: 0 });
});

test('SEC-6: retention deletes what was sealed long ago; the chain goes on', async () => {
  const scene = await unsealed();
  const ask = await scene.as('admin');
  await ask('POST', '/v1/keys', { name: 'a', role: 'auditor' });
  // Sealed by a server whose clock is two days behind.
  const { database } = scene.tallyman;
  await database.query(`create schema old`);
  await database.query(
    `create function old.clock_timestamp() returns timestamptz language sql as $$ select pg_catalog.clock_timestamp() - interval '2 days' $$`,
  );
  await database.transaction(async (tx) => {
    await tx.query('set local search_path = old, pg_catalog');
    expect(await addSeal(tx, new AuditChain(scene.box), 1n)).toBe(1);
  });
  await ask('POST', '/v1/keys', { name: 'b', role: 'auditor' });
  expect(await seal(scene, 1)).toBe(1);
  expect(await verify(scene)).toMatchObject({ isIntact: true, seals: 2, events: 1, pruned: 1 });
  expect(await scene.rows('select 1 from tallyman_server.audit_events')).toHaveLength(1);
});

test('SEC-6: an event that commits late is in a later seal, never in none', async () => {
  const scene = await sealed();
  const late = new pg.Client({ connectionString: scene.databaseUrl });
  await late.connect();
  onTestFinished(() => late.end());
  await late.query('begin');
  await late.query(
    `insert into tallyman_server.audit_events (tenant_id, actor, action, outcome, status) values ('default', 'a', 'b', 'done', 200)`,
  );
  await scene.rows(
    `insert into tallyman_server.audit_events (tenant_id, actor, action, outcome, status) values ('default', 'c', 'd', 'done', 200)`,
  );
  const sealing = seal(scene);
  await until('it waits', async () => {
    const rows = await scene.rows(
      `select 1 from pg_stat_activity where datname = current_database() and query like '%virtual' || 'xid%'`,
    );
    return rows.length > 0;
  });
  await late.query('commit');
  expect(await sealing).toBe(2);
  expect(await verify(scene)).toMatchObject({ isIntact: true, events: 11, unsealed: 0 });
});

test('SEC-6: seals of two processes at once make one chain; one that is killed in the middle leaves none half-made', async () => {
  const scene = await unsealed();
  const ask = await scene.as('admin');
  const write = () => ask('POST', '/v1/keys', { name: 'k', role: 'auditor' });
  for (let round = 0; round < 5; round += 1) {
    const sealing = Promise.allSettled([write(), write(), seal(scene), seal(scene)]);
    let isOver = false;
    void sealing.then(() => {
      isOver = true;
    });
    while (!isOver) await killSealers(scene);
  }
  await until('all is sealed', async () => {
    await seal(scene).catch(() => {});
    return (await verify(scene)).unsealed === 0;
  });
  expect(await verify(scene)).toMatchObject({ isIntact: true, events: 10 });
});

const killSealers = ({ rows }: TestServer) =>
  rows(
    `select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and application_name = 'tallyman exclusive section'`,
  );

test('SEC-6: a repeated answer that shows a secret again is in the audit', async () => {
  const scene = await unsealed();
  const ask = await scene.as('admin');
  const create = () => ask('POST', '/v1/keys', { name: 'k', role: 'auditor' }, { 'idempotency-key': 'once' });
  const [first, second] = [await create(), await create()];
  expect(second.body.key).toBe(first.body.key);
  const events = await scene.rows(
    `select code, resource from tallyman_server.audit_events where action = 'keys.create' order by id`,
  );
  expect(events).toEqual([
    { code: null, resource: first.body.id },
    { code: 'REPLAYED', resource: first.body.id },
  ]);
});

test('SEC-6: the audit has the first id of a batch, and how many more there are', async () => {
  const scene = await unsealed();
  await registerKind(scene, 'noop');
  const ask = await scene.as('producer');
  const send = (jobs: number) =>
    ask('POST', '/v1/jobs/batch', { jobs: Array.from({ length: jobs }, () => ({ kind: 'noop' })) });
  const [one, three] = [await send(1), await send(3)];
  const events = await scene.rows(
    `select resource from tallyman_server.audit_events where action = 'jobs.enqueue_many' order by id`,
  );
  expect(events).toEqual([{ resource: one.body.ids[0] }, { resource: `${three.body.ids[0]} and 2 more` }]);
});

test('SEC-6: what is refused again and again is written once and counted', async () => {
  const scene = await unsealed();
  const trail = new AuditTrail(scene.tallyman.database);
  const refusal: AuditEvent = {
    tenantId: 'default',
    actor: 'anonymous',
    action: 'jobs.list',
    resource: null,
    outcome: 'refused',
    status: 401,
    code: 'UNAUTHENTICATED',
    correlationId: null,
    address: '10.0.0.1',
  };
  for (let i = 0; i < 1000; i += 1) trail.note(refusal);
  trail.note({ ...refusal, address: '10.0.0.2' });
  trail.note({ ...refusal, outcome: 'failed', status: 409 });
  trail.note({ ...refusal, outcome: 'failed', status: 409 });
  await trail.flushed();
  expect(
    await scene.rows(
      `select address, outcome, times from tallyman_server.audit_events order by address, outcome, times`,
    ),
  ).toEqual([
    { address: '10.0.0.1', outcome: 'failed', times: 1 },
    { address: '10.0.0.1', outcome: 'failed', times: 1 },
    { address: '10.0.0.1', outcome: 'refused', times: 1 },
    { address: '10.0.0.1', outcome: 'refused', times: 999 },
    { address: '10.0.0.2', outcome: 'refused', times: 1 },
  ]);
});

test('SEC-6: refusals from many addresses do not flood it: a /64 is one caller, and what finds no room is one event', async () => {
  const scene = await unsealed();
  const trail = new AuditTrail(scene.tallyman.database);
  const refusal = (address: string, tenantId = 'default'): AuditEvent => ({
    tenantId,
    actor: 'anonymous',
    action: 'jobs.list',
    resource: null,
    outcome: 'refused',
    status: 401,
    code: 'UNAUTHENTICATED',
    correlationId: null,
    address,
  });
  const written = (actor: string) =>
    scene.rows(
      `select tenant_id, address, times from tallyman_server.audit_events where actor = $1 order by id`,
      [actor],
    );
  for (let i = 1; i <= 300; i += 1) trail.note(refusal(`2001:db8:0:1::${i.toString(16)}`));
  await trail.flushed();
  expect(await written('anonymous')).toEqual([
    { tenant_id: 'default', address: '2001:db8:0:1::1', times: 1 },
    { tenant_id: 'default', address: '2001:db8:0:1::12c', times: 299 },
  ]);
  // 10,000 callers are told apart.
  for (let i = 0; i < 10_500; i += 1) trail.note(refusal(`10.0.${i >> 8}.${i & 255}`));
  trail.note(refusal('10.1.0.0', 'acme'));
  await until('those are written', async () => (await written('anonymous')).length === 10_002);
  await trail.flushed();
  expect(await written('several')).toEqual([
    { tenant_id: 'default', address: null, times: 500 },
    { tenant_id: 'acme', address: null, times: 1 },
  ]);
  expect(await written('anonymous')).toHaveLength(10_002);
});

test('SEC-6: `tallyman audit verify` tells, as text and as JSON, and with another secret it does not agree', async () => {
  const scene = await sealed();
  const cli = async (secret: Buffer, ...args: string[]) =>
    start('src/cli/main.ts', ['audit', 'verify', ...args], {
      env: { DATABASE_URL: scene.databaseUrl, TALLYMAN_SECRET_KEY: secret.toString('base64') },
    }).ended;
  const { master } = scene;
  const told = await cli(master);
  expect(told).toMatchObject({ code: 0, stderr: '' });
  const head = /^Head: (\S+)$/m.exec(told.stdout)?.[1] ?? '';
  expect(told.stdout).toContain('9 events in 3 seals');
  expect(JSON.parse((await cli(master, '--json', '--head', head)).stdout)).toMatchObject({
    intact: true,
    head,
  });
  expect(await cli(randomBytes(32))).toMatchObject({ code: 1 });
  await force(scene, `update tallyman_server.audit_events set status = 500 where id = 1`);
  const changed = await cli(master);
  expect(changed.code).toBe(1);
  expect(changed.stdout).toMatch(/events to 3, sealed .*: at least one was changed/);
  expect((await cli(master, '--head', 'x')).stderr).toContain('64 hexadecimal digits');
  expect(new SecretBox(master).derive('audit')).not.toEqual(new SecretBox(master).derive('seal'));
});

test('SEC-6: what the command line changes is in the audit, what failed there, too; looking is not', async () => {
  const scene = await unsealed();
  const cli = (...args: string[]) =>
    start('src/cli/main.ts', args, {
      env: { DATABASE_URL: scene.databaseUrl, TALLYMAN_SECRET_KEY: scene.master.toString('base64') },
    }).ended;
  expect(await cli('tenants', 'create', 'acme')).toMatchObject({ code: 0 });
  expect(await cli('keys', 'create', '--name', 'k', '--role', 'admin', '--tenant', 'acme')).toMatchObject({
    code: 0,
  });
  expect(await cli('keys', 'list')).toMatchObject({ code: 0 });
  expect((await cli('keys', 'revoke', 'nosuchkey')).code).not.toBe(0);
  const [key] = await scene.rows<{ id: string }>(`select id from tallyman_server.api_keys where name = 'k'`);
  const events = await scene.rows(
    `select tenant_id, actor ~ '^cli:.' as "isCli", action, resource, outcome, code from tallyman_server.audit_events order by id`,
  );
  const isCli = true;
  expect(events).toEqual([
    { tenant_id: 'default', isCli, action: 'tenants.create', resource: 'acme', outcome: 'done', code: null },
    { tenant_id: 'acme', isCli, action: 'keys.create', resource: key?.id, outcome: 'done', code: null },
    {
      tenant_id: 'default',
      isCli,
      action: 'keys.revoke',
      resource: 'nosuchkey',
      outcome: 'failed',
      code: 'NOT_FOUND',
    },
  ]);
});
