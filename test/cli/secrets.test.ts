import { randomBytes } from 'node:crypto';
import { expect, test } from 'vitest';
import { sealedInStores } from '../../src/apps/labels/stores.ts';
import { sealedInEndpoints } from '../../src/apps/webhooks/sealed.ts';
import { apps } from '../../src/host/apps.ts';
import { SecretBox } from '../../src/secrets/box.ts';
import { countOthers } from '../../src/secrets/reseal.ts';
import { ApiKeys } from '../../src/server/access/keys.ts';
import { sealAudit } from '../../src/server/audit/seals.ts';
import { verifyAudit } from '../../src/server/audit/verify.ts';
import { sealedAnswers } from '../../src/server/http/idempotency.ts';
import { server, type TestServer } from '../server/support.ts';
import { start } from './support.ts';

const columns = [sealedAnswers, sealedInStores, ...sealedInEndpoints];

/** Secrets of every sort, under the scene's master secret; and the rings of a change to a new one. */
async function furnished() {
  const scene = await server({ config: { 'server.auditSealSeconds': 86_400 } });
  const { key } = await scene.keys.create({ tenantId: 'default', name: 'k', role: 'admin' });
  const ask = async (method: string, path: string, body: unknown, more: Record<string, string> = {}) => {
    const headers = { authorization: `Bearer ${key}`, ...more };
    const answer = await scene.ask(method, path, body, headers);
    expect([path, answer.status < 300, answer.body]).toEqual([path, true, answer.body]);
    return answer;
  };
  await ask('POST', '/v1/webhooks', {
    url: 'http://127.0.0.1:9/hook',
    headers: { 'x-token': 'hidden' },
    ed25519: true,
  });
  const password = { kind: 'aims', company: 'c', store: 's', username: 'u', password: 'hidden' };
  await ask('PUT', '/v1/stores/s1', { gateway: { ...password, url: 'http://127.0.0.1:9' } });
  await ask('POST', '/v1/keys', { name: 'x', role: 'auditor' }, { 'idempotency-key': 'once' });
  const fresh = randomBytes(32);
  const boxes = { ring: new SecretBox(fresh, [scene.master]), fresh: new SecretBox(fresh) };
  const cli = (...args: string[]) =>
    start('src/cli/main.ts', ['secrets', ...args], {
      env: {
        DATABASE_URL: scene.databaseUrl,
        TALLYMAN_SECRET_KEY: fresh.toString('base64'),
        TALLYMAN_OTHER_SECRET_KEYS: scene.master.toString('base64'),
      },
    });
  return { scene, key, boxes, cli };
}

const left = async ({ tallyman }: TestServer, box: SecretBox): Promise<number[]> =>
  Promise.all(columns.map((column) => countOthers(tallyman.database, box, column)));

test('SEC-7: what is sealed under an old master secret opens, and a change of it seals everything anew', async () => {
  const { scene, key, boxes, cli } = await furnished();
  expect(await left(scene, boxes.ring)).toEqual(columns.map(() => 1));
  const before = JSON.parse((await cli('status', '--json').ended).stdout);
  expect(before).toMatchObject({ keys: boxes.ring.keyIds, api_keys_under_others: 2 });
  expect(await cli('rotate').ended).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('2 API keys were not used since the change'),
  });
  expect(await left(scene, boxes.ring)).toEqual(columns.map(() => 0));
  // API keys are taken over when they are used.
  const keysOf = (box: SecretBox) => new ApiKeys(scene.tallyman.database, box);
  expect(await keysOf(boxes.fresh).verify(key)).toBeUndefined();
  expect(await keysOf(boxes.ring).verify(key)).toMatchObject({ role: 'admin' });
  expect(await keysOf(boxes.fresh).verify(key)).toMatchObject({ role: 'admin' });
  expect(await keysOf(boxes.ring).underOthers()).toBe(1);
  // Without the old secret everything opens.
  for (const { table, column, keys, also = [], context } of columns) {
    const names = [...keys, ...also].map((name) => `${name}::text`).join(', ');
    const [row] = await scene.rows<Record<string, string>>(
      `select ${names}, ${column} as sealed from ${table}`,
    );
    expect(boxes.fresh.open(row?.sealed ?? '', context(row ?? {}))).toBeTruthy();
  }
});

test('SEC-7: a rotation that is killed leaves everything readable, and the next one ends it', async () => {
  const { scene, boxes, cli } = await furnished();
  const many = 5_000;
  await scene.rows(
    `insert into tallyman_server.idempotency_keys (tenant_id, key, digest, status, body)
     select 'default', 'many' || n, '', 200, $1[n] from generate_series(1, ${many}) n`.replace(
      '$1[n]',
      '($1::text[])[n]',
    ),
    [
      Array.from({ length: many }, (_, i) =>
        scene.box.seal(`"answer ${i + 1}"`, `answer:default:many${i + 1}`),
      ),
    ],
  );
  const rotating = cli('rotate');
  await rotating.said(/idempotency_keys: \d+ sealed anew …/);
  rotating.child.kill('SIGKILL');
  await rotating.ended;
  const [answers = 0] = await left(scene, boxes.ring);
  expect(answers).toBeGreaterThan(0);
  expect(answers).toBeLessThan(many);
  const open = async (box: SecretBox) => {
    const rows = await scene.rows<{ key: string; body: string }>(
      `select key, body from tallyman_server.idempotency_keys where key like 'many%'`,
    );
    for (const { key, body } of rows)
      expect(box.open(body, `answer:default:${key}`)).toBe(`"answer ${key.slice(4)}"`);
    return rows.length;
  };
  expect(await open(boxes.ring)).toBe(many);
  expect(await cli('rotate').ended).toMatchObject({ code: 0 });
  expect(await open(boxes.fresh)).toBe(many);
});

test('SEC-7: the audit is verified across a change of the master secret, with both', async () => {
  const { scene, boxes } = await furnished();
  const { database } = scene.tallyman;
  const options = { keepDays: 0, signal: AbortSignal.timeout(60_000) };
  await sealAudit(database, scene.box, options);
  await scene.rows(
    `insert into tallyman_server.audit_events (tenant_id, actor, action, outcome, status) values ('default', 'a', 'b', 'done', 200)`,
  );
  expect(await sealAudit(database, boxes.ring, options)).toBe(1);
  expect(await verifyAudit(database, boxes.ring)).toMatchObject({ isIntact: true, seals: 2 });
  const alone = await verifyAudit(database, boxes.fresh);
  expect(alone.problems).toEqual([
    `seal 1 was made under the master secret ${scene.box.keyId}, which is not configured (secrets.otherKeys)`,
  ]);
});

test('SEC-7: every column that holds sealed secrets is declared', async () => {
  const scene = await server();
  const found = await scene.rows<{ name: string }>(
    `select table_schema || '.' || table_name || '.' || column_name as name from information_schema.columns
      where column_name ~ 'sealed$' and data_type = 'text' order by 1`,
  );
  const declared = apps
    .flatMap(({ sealed }) => sealed ?? [])
    .map(({ table, column }) => `${table}.${column}`);
  expect(found.map(({ name }) => name)).toEqual(declared.sort());
});

test('SEC-7: with one master secret there is nothing to rotate, and it says what to do', async () => {
  const scene = await server();
  const refused = await start('src/cli/main.ts', ['secrets', 'rotate'], {
    env: { DATABASE_URL: scene.databaseUrl, TALLYMAN_SECRET_KEY: scene.master.toString('base64') },
  }).ended;
  expect(refused.code).not.toBe(0);
  expect(refused.stderr).toContain('TALLYMAN_OTHER_SECRET_KEYS');
});
