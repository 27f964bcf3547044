import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { extendHead } from '../../../src/apps/passports/audit/head.ts';
import { documents, items, product, rulePackage } from '../../../src/apps/passports/compile/sample/index.ts';
import { Database } from '../../../src/engine/database/database.ts';
import { prepareTenants, TenantDatabase } from '../../../src/engine/database/tenant.ts';
import { scratch, start } from '../../cli/support.ts';
import { emptyDatabase } from '../../support/postgres.ts';
import { itemsCsv } from './api.ts';
import { testKeys } from './means.ts';

/** An empty database with its tables, and a folder for files. */
async function office() {
  const { url, drop } = await emptyDatabase();
  const cwd = await scratch();
  const env = {
    DATABASE_URL: url,
    BPC_SIGNING_ED25519_PRIVATE_KEY_BASE64: Buffer.alloc(32, 7).toString('base64'),
    BPC_SIGNING_KEY_ID: 'test-1',
  };
  const cli = (...args: string[]) => start('src/cli/main.ts', args, { cwd, env }).ended;
  const json = async (...args: string[]) => {
    const ended = await cli(...args, '--json');
    expect({ args, stderr: ended.stderr, code: ended.code }).toMatchObject({ args, code: 0 });
    return JSON.parse(ended.stdout);
  };
  expect(await cli('migrate')).toMatchObject({ code: 0 });
  const database = await Database.connect({ url });
  onTestFinished(async () => {
    await database.close();
    await drop();
  });
  return {
    cli,
    json,
    database,
    put: (name: string, text: string | Uint8Array) => writeFile(join(cwd, name), text),
    read: (name: string) => readFile(join(cwd, name), 'utf8'),
  };
}

test('BPC-1, BPC-2, BPC-6, BPC-14, BPC-15: from files to active passports on the command line, replayed and audited', {
  timeout: 300_000,
}, async () => {
  const { cli, json, put, database } = await office();
  const { id, name, category, gtin, manufacturer, manufacturerId } = product;
  const names = ['--name', name, '--category', category, '--gtin', gtin];
  const makers = ['--manufacturer', manufacturer, '--manufacturer-id', manufacturerId];
  expect(await json('passports', 'products', 'put', id, ...names, ...makers)).toMatchObject({ id, gtin });
  await put('serials.csv', itemsCsv);
  const batteries = ['passports', 'import', 'serials.csv', '--product', id, '--kind', 'batteries'];
  expect((await cli(...batteries)).stdout).toBe('3 batteries added, 0 there already.\n');
  const files: Record<string, string[]> = {};
  for (const { name: file, input } of documents) {
    await put(file, input.bytes);
    files[input.kind] = [...(files[input.kind] ?? []), file];
  }
  for (const [kind, list] of Object.entries(files)) {
    const { items: read } = await json('passports', 'import', ...list, '--product', id, '--kind', kind);
    expect(read.map(({ state }: { state: string }) => state)).toEqual(list.map(() => 'VALIDATED'));
  }
  await put('rules.json', JSON.stringify(rulePackage));
  expect(await cli('passports', 'rules', 'check', 'rules.json')).toMatchObject({ code: 0 });
  const tested = await cli('passports', 'rules', 'test', 'rules.json');
  expect(tested.stdout.split('\n').filter((line) => line.startsWith('passed'))).toHaveLength(5);
  expect(await json('passports', 'rules', 'publish', 'rules.json')).toMatchObject({ state: 'PUBLISHED' });
  expect(await json('passports', 'build', id)).toMatchObject({ state: 'SEALED' });
  const compile = ['passports', 'compile', id, '--rules', rulePackage.id];
  const compiled = await json(...compile, '--issued-at', '2027-02-18T00:00:00Z');
  expect(compiled).toMatchObject({ model: { state: 'ACTIVE' }, batteries: 3, versions: { ACTIVE: 3 } });

  const serial = items[1]?.serial ?? '';
  const shown = await cli('passports', 'show', serial);
  expect(shown.stdout).toMatch(/1 {2}ACTIVE +2027-02-18T00:00:00Z/);
  expect(await json('passports', 'show', serial)).toMatchObject({
    serial,
    status: 'original',
    predecessors: [],
  });
  expect(await cli('passports', 'show', 'nothing')).toMatchObject({ code: 3 });
  expect((await json('passports', 'list', '--product', id)).items).toHaveLength(4);
  const one = await json(...compile, '--battery', serial, '--issued-at', '2027-03-01T00:00:00Z');
  expect(one.passports).toHaveLength(4);
  expect((await cli('passports', 'show', serial)).stdout).toMatch(/2 {2}ACTIVE[\s\S]*1 {2}SUPERSEDED/);

  // Exports are kept, and are the same bytes each time; a step that cannot be taken says what to do.
  const { active_version_id: version } = await json('passports', 'show', serial);
  const exported = await json('passports', 'exports', 'request', version, '--format', 'json');
  expect(exported).toMatchObject({ version_id: version, state: 'READY', sha256: expect.any(String) });
  expect(await json('passports', 'exports', 'request', version, '--format', 'json')).toEqual(exported);
  expect((await json('passports', 'exports', 'list')).items).toEqual([exported]);
  expect(await json('passports', 'exports', 'get', exported.id, '--output', 'passport.json')).toEqual({
    file: 'passport.json',
    bytes: exported.size,
    sha256: exported.sha256,
  });
  expect(await cli('verify', 'passport.json')).toMatchObject({ code: 0 });
  const lacking = await cli(
    'passports',
    'exports',
    'request',
    version,
    '--format',
    'catenax',
    '--reader',
    'owner',
  );
  expect(lacking).toMatchObject({ code: 1, stderr: expect.stringContaining('economicOperatorId') });
  expect(await json('passports', 'activate', version)).toMatchObject({ state: 'ACTIVE' });
  expect(await json('passports', 'revoke', version, '--reason', 'wrong')).toMatchObject({ state: 'REVOKED' });
  expect(await cli('passports', 'activate', version)).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(/^error: version \S+ was revoked .*tallyman passports compile/),
  });
  expect(await cli('passports', 'revoke', version, '--reason', 'other')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('the reason that was given then stays'),
  });
  expect(await cli('passports', 'activate', 'nothing')).toMatchObject({ code: 3 });

  expect(await json('passports', 'replay', '--all')).toMatchObject({ replayed: 5, failed: 0 });
  expect(await json('passports', 'audit')).toMatchObject({ broken: null });
  await database.query('alter table passports.artefacts disable trigger user');
  await database.query(`update passports.artefacts set payload = replace(payload, 'Sample City', 'Simple City')
                         where payload like '%Sample City%'`);
  const replayed = await cli('passports', 'replay', '--all');
  expect(replayed).toMatchObject({ code: 1, stderr: expect.stringContaining('REPLAY_MISMATCH') });
  await database.query('alter table passports.audit_events disable trigger user');
  await database.query(`update passports.audit_events set data = '{}' where type = 'version.signed'`);
  expect(await cli('passports', 'audit')).toMatchObject({
    code: 1,
    stdout: expect.stringMatching(/BROKEN at version:[0-9a-f-]+#3: its content was changed/),
  });
});

test('BPC-2, BPC-6: what is wrong with files is told by row and column, rules by rule and position; nothing is kept', {
  timeout: 240_000,
}, async () => {
  const { cli, json, put, database } = await office();
  const { id, name, category, gtin, manufacturer, manufacturerId } = product;
  const names = ['--name', name, '--category', category, '--gtin', gtin];
  await json(
    'passports',
    'products',
    'put',
    id,
    ...names,
    '--manufacturer',
    manufacturer,
    '--manufacturer-id',
    manufacturerId,
  );
  await put('bom.csv', 'component,material,cas,mass,unit\nanode,graphite,7782-42-6,"1,5",kg\n');
  const bad = await cli('passports', 'import', 'bom.csv', '--product', id, '--kind', 'bill_of_materials');
  expect(bad.code).toBe(1);
  expect(bad.stderr).toContain('bom.csv: row 2, column cas: ');
  expect(bad.stderr).toContain('bom.csv: row 2, column mass: ');
  await put('serials.csv', 'serial,manufactured_on,manufactured_at\nA-1,2027-01,Here\nA-1,2027-01,Here\n');
  const doubled = await cli('passports', 'import', 'serials.csv', '--product', id, '--kind', 'batteries');
  expect(doubled).toMatchObject({ code: 1, stdout: 'Nothing was added.\n' });
  expect(doubled.stderr).toContain('serials.csv: row 3, column serial: ');
  const { rows } = await database.query(
    'select (select count(*)::int from passports.facts) as facts, (select count(*)::int from passports.items) as items',
  );
  expect(rows).toEqual([{ facts: 0, items: 0 }]);

  const [rule, ...rules] = rulePackage.rules;
  const broken = { ...rulePackage, rules: [{ ...rule, expression: 'Kg("1") + kWh(1)' }, ...rules] };
  await put('broken.json', JSON.stringify(broken));
  const checked = await cli('passports', 'rules', 'check', 'broken.json');
  expect(checked).toMatchObject({
    code: 1,
    stderr: expect.stringMatching(new RegExp(`^${rule?.field} 1:\\d+: `)),
  });
  const [testCase, ...cases] = rulePackage.testCases;
  const expected = { ...testCase?.expect, [rule?.field ?? '']: { status: 'value', value: 'something else' } };
  await put(
    'failing.json',
    JSON.stringify({ ...rulePackage, testCases: [{ ...testCase, expect: expected }, ...cases] }),
  );
  expect(await cli('passports', 'rules', 'test', 'failing.json')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining(`${rule?.field} should be`),
  });
  expect(await cli('passports', 'rules', 'publish', 'failing.json')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('test cases fail'),
  });
  const vacuous = { ...rulePackage, testCases: [{ ...testCase, name: 'all is well', expect: {} }, ...cases] };
  await put('vacuous.json', JSON.stringify(vacuous));
  for (const verb of ['check', 'test', 'publish'])
    expect(await cli('passports', 'rules', verb, 'vacuous.json'), verb).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/test case "all is well" expects nothing, .* name at least one field/),
    });
  await put('untested.json', JSON.stringify({ ...rulePackage, testCases: [] }));
  expect(await cli('passports', 'rules', 'test', 'untested.json')).toMatchObject({
    code: 1,
    stdout: expect.stringContaining('There are no test cases'),
  });
  expect((await json('passports', 'rules', 'list')).items).toEqual([]);
  expect(await cli('passports', 'build', 'nothing')).toMatchObject({ code: 3 });
  for (const ah of ['151', '152']) {
    await put(`${ah}.csv`, `attribute,value,unit\nratedCapacity,${ah},Ah\n`);
    await json('passports', 'import', `${ah}.csv`, '--product', id, '--kind', 'data_sheet');
  }
  const failed = await cli('passports', 'build', id);
  expect(failed).toMatchObject({ code: 1, stderr: expect.stringContaining('DUPLICATE_FACT') });
  const snapshot = /tallyman passports rebuild (\S+)/.exec(failed.stderr)?.[1] ?? '';
  expect(await cli('passports', 'rebuild', snapshot)).toMatchObject({ code: 1 });
  await put('152.csv', 'attribute,value,unit\nratedCapacity,151,Ah\n');
  await json('passports', 'import', '152.csv', '--product', id, '--kind', 'data_sheet');
  expect(await json('passports', 'rebuild', snapshot)).toMatchObject({
    id: snapshot,
    state: 'SEALED',
    error: null,
  });
  expect(await cli('passports', 'import', 'bom.txt', '--product', id, '--kind', 'data_sheet')).toMatchObject({
    code: 2,
  });
});

test('BPC-14: passports audit with a head that was saved before finds a trail that was cut back together with its heads', {
  timeout: 240_000,
}, async () => {
  const { cli, json, put, read, database } = await office();
  await prepareTenants(database);
  const sign = () =>
    new TenantDatabase(database, 'default').transaction((scope) => extendHead(scope, testKeys));
  const register = (id: string, gtin: string) =>
    json(
      ...['passports', 'products', 'put', id, '--name', id, '--category', 'ev', '--gtin', gtin],
      ...['--manufacturer', 'Sample', '--manufacturer-id', 'https://batteries.example'],
    );
  await register('kept', product.gtin);
  expect(await cli('passports', 'audit', '--save-head', 'head.json')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('there is no signed head yet'),
  });
  expect(await sign()).toBe(1);
  await register('cut', '09520123456795');
  expect(await sign()).toBe(1);
  const saved = await cli('passports', 'audit', '--save-head', 'head.json');
  expect(saved).toMatchObject({ code: 0, stdout: expect.stringContaining('Head 2 is in head.json') });
  expect(JSON.parse(await read('head.json'))).toMatchObject({
    format: 'tallyman-audit-head-1',
    tenant: 'default',
    number: 2,
    signing_key: 'test-1',
  });
  const again = await cli('passports', 'audit', '--head', 'head.json', '--save-head', 'head.json');
  expect(again).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('head 2 is the one that you know'),
  });

  // The owner of the database takes the last change back: the row, its event, and the head over it. What is left fits.
  await database.transaction(async (tx) => {
    await tx.query('set local session_replication_role = replica');
    for (const cut of [
      `delete from passports.products where id = 'cut'`,
      `delete from passports.audit_events where aggregate_id = 'cut'`,
      'delete from passports.audit_heads where number = 2',
    ])
      expect((await tx.query(cut)).rowCount).toBe(1);
  });
  expect(await json('passports', 'audit')).toMatchObject({ heads: 1, broken: null });
  const before = await read('head.json');
  const broken = await cli('passports', 'audit', '--head', 'head.json', '--save-head', 'head.json');
  expect(broken).toMatchObject({
    code: 1,
    stdout: expect.stringContaining('BROKEN at head 2: it was known once and is gone'),
  });
  // What is known stays known.
  expect(await read('head.json')).toBe(before);
  // Work goes on, and another head takes the number.
  await register('later', '09520123456788');
  expect(await sign()).toBe(1);
  expect(await json('passports', 'audit')).toMatchObject({ heads: 2, broken: null });
  expect(await cli('passports', 'audit', '--head', 'head.json')).toMatchObject({
    code: 1,
    stdout: expect.stringContaining('BROKEN at head 2: it is not the head that was known'),
  });

  const head = JSON.parse(before);
  for (const [text, reason] of [
    ['nonsense', 'it is no saved head'],
    [JSON.stringify({ ...head, tenant: 'other' }), 'it is a head of the tenant "other"'],
    [JSON.stringify({ ...head, signing_key: 'old' }), 'its public key "old" is not known'],
    [JSON.stringify({ ...head, hash: '0'.repeat(64) }), 'its signature does not verify'],
  ] as const) {
    await put('wrong.json', text);
    expect(await cli('passports', 'audit', '--head', 'wrong.json')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(`wrong.json cannot be used: ${reason}`),
    });
  }
});

test('BPC-17: tallyman passports sample: from nothing to active passports with one command, and once more changes nothing', {
  timeout: 240_000,
}, async () => {
  const { cli, json, database } = await office();
  const made = await cli('passports', 'sample');
  expect({ code: made.code, stderr: made.stderr }).toMatchObject({ code: 0 });
  expect(made.stderr).toContain(`document ${documents[0]?.name}`);
  for (const { serial } of items)
    expect(made.stdout).toMatch(
      new RegExp(`${serial} +ACTIVE +1 +https://localhost/01/${product.gtin}/21/${serial}`),
    );
  const versions = async () =>
    (await database.query('select id, state, receipt_hash from passports.versions order by id')).rows;
  const before = await versions();
  expect(before.map(({ state }) => state)).toEqual(['ACTIVE', 'ACTIVE', 'ACTIVE', 'ACTIVE']);
  expect(await json('passports', 'sample')).toMatchObject({
    model: { state: 'ACTIVE' },
    versions: { ACTIVE: 3 },
  });
  expect(await versions()).toEqual(before);
  const { rows } = await database.query<{ values: number; reasons: number }>(
    `select count(*) filter (where f ->> 'status' = 'value')::int as values,
            count(*) filter (where f ->> 'status' <> 'value' and coalesce(f ->> 'reason', f ->> 'article') <> '')::int as reasons
       from passports.artefacts a join passports.versions v on v.id = a.version_id,
            jsonb_each(a.payload::jsonb -> 'points') p, jsonb_each(p.value -> 'fields') x (name, f) where v.item is null`,
  );
  const [counts] = rows;
  expect((counts?.values ?? 0) + (counts?.reasons ?? 0)).toBe(rulePackage.rules.length);
});
