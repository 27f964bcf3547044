import { Readable } from 'node:stream';
import { expect, test } from 'vitest';
import { documents, product } from '../../../src/apps/passports/compile/sample/index.ts';
import type { Answer } from '../../server/support.ts';
import { csv, documentUrl, made, passportServer, productUrl, putModel } from './api.ts';

const bom = documents.find(({ name }) => name === 'bill-of-materials.csv')?.input.bytes ?? new Uint8Array();
const bomText = Buffer.from(bom).toString('utf8');
const changed = (from: string, to: string): string => {
  expect(bomText).toContain(from);
  return bomText.replace(from, to);
};
const rows = (count: number): string =>
  ['component,material,mass,unit', ...Array.from({ length: count }, (_, n) => `anode,m${n},1,kg`)].join('\n');

/** By name: bytes, and the problem that is told: code, row, column. */
const bad: readonly (readonly [
  name: string,
  bytes: Uint8Array,
  problem: readonly [string, number | null, string | null],
])[] = [
  ['UTF-16', Buffer.from(`\ufeff${bomText}`, 'utf16le'), ['WRONG_ENCODING', 1, null]],
  [
    'Latin-1',
    Buffer.from(changed('anode,graphite', 'anode,gr\u00e4phite'), 'latin1'),
    ['WRONG_ENCODING', 6, 'material'],
  ],
  [
    'a missing column',
    Buffer.from(bomText.replaceAll(/^([^,]*,[^,]*,[^,]*),[^,]*,/gm, '$1,')),
    ['MISSING_COLUMN', 1, 'mass'],
  ],
  [
    'a doubled column',
    Buffer.from(changed('component,material,cas', 'component,material,material')),
    ['DOUBLED_COLUMN', 1, 'material'],
  ],
  ['100,000 rows', Buffer.from(rows(100_000)), ['TOO_MANY_ROWS', 50_002, null]],
  ['a decimal comma', Buffer.from(changed(',30.5,kg', ',"30,5",kg')), ['DECIMAL_COMMA', 10, 'mass']],
  [
    'a unit that does not fit',
    Buffer.from(changed('7782-42-5,105,kg', '7782-42-5,105,kWh')),
    ['WRONG_UNIT', 6, 'unit'],
  ],
  [
    'a CAS number with a wrong check digit',
    Buffer.from(changed('7782-42-5', '7782-42-6')),
    ['CAS_CHECK_DIGIT', 6, 'cas'],
  ],
  ['nothing', Buffer.from('component,material,mass,unit\n'), ['EMPTY', null, null]],
];

test('BPC-2: a document with a mistake is rejected with row and column, and gives no fact; corrected, it is read', {
  timeout: 240_000,
}, async () => {
  const test = await passportServer();
  const ask = await test.as('producer');
  const reader = await test.as('auditor');
  await putModel(await test.as('operator'));
  /** As a producer asks for a document: by its id, and by the hash that shows that it has it. */
  const shown = ({ version_id: id, sha256 }: { version_id: string; sha256: string }) =>
    made(ask('GET', `/v1/passports/documents/${id}?sha256=${sha256}`));
  const uploaded: { version_id: string; sha256: string }[] = [];
  for (const [name, bytes] of bad)
    uploaded.push(await made(ask('POST', documentUrl(`${name}.csv`, 'bill_of_materials'), bytes, csv)));
  await test.settle();
  for (const [at, [name, , [code, row, column]]] of bad.entries()) {
    const { state, fact_count, problems } = await shown(uploaded[at] ?? { version_id: '', sha256: '' });
    expect({ name, state, fact_count, first: problems[0] }).toEqual({
      name,
      state: 'REJECTED',
      fact_count: null,
      first: { code, row, column, message: expect.any(String) },
    });
  }
  expect((await made(reader('GET', '/v1/passports/facts'))).items).toEqual([]);
  const rejected = await test.rows(
    `select count(*)::int as n from tallyman_events.events where event_type = 'document.version.rejected'`,
  );
  expect(rejected).toEqual([{ n: bad.length }]);

  const corrected = await made(ask('POST', documentUrl('UTF-16.csv', 'bill_of_materials'), bom, csv));
  expect(corrected).toMatchObject({ number: 2, existing: false });
  await test.settle();
  expect(await shown(corrected)).toMatchObject({
    state: 'VALIDATED',
    fact_count: 18,
    problems: null,
  });
});

test('BPC-2: an upload beyond the limit is refused before it is kept, with and without a length; other types too', {
  timeout: 240_000,
}, async () => {
  const test = await passportServer({ 'server.uploadMemoryBytes': 64 * 1024 * 1024 });
  const ask = await test.as('operator');
  await putModel(ask);
  const tooLarge = { status: 413, body: { error: { code: 'PAYLOAD_TOO_LARGE' } } };
  const url = documentUrl('large.csv', 'bill_of_materials');
  const large = Buffer.alloc(50 * 1024 * 1024, 'x');
  // The server answers before it has read everything; a client that goes on sending may see the connection end instead.
  const refused = async (answer: Promise<Answer>) => answer.catch(() => tooLarge);
  expect(await refused(ask('POST', url, large, csv))).toMatchObject(tooLarge);
  const { key } = await test.keys.create({ tenantId: 'default', name: 'k', role: 'operator' });
  const chunks = Readable.from(
    (function* () {
      for (let n = 0; n < 50; n += 1) yield Buffer.alloc(1024 * 1024, 'x');
    })(),
  );
  const streamed = await fetch(`${test.url}${url}`, {
    method: 'POST',
    headers: { ...csv, authorization: `Bearer ${key}` },
    body: Readable.toWeb(chunks) as ReadableStream,
    duplex: 'half',
  }).then(
    (response) => response.status,
    () => 413,
  );
  expect(streamed).toBe(413);
  expect(await refused(ask('POST', `${productUrl}/items`, large, csv))).toMatchObject(tooLarge);
  for (const type of ['text/plain', 'application/octet-stream', 'application/pdf'])
    expect((await ask('POST', url, 'x', { 'content-type': type })).status).toBe(415);
  expect((await ask('POST', url)).status).toBe(202);
  await test.settle();
  expect(await test.rows('select state from passports.document_versions')).toEqual([{ state: 'REJECTED' }]);
  expect(await test.rows('select 1 from passports.items')).toEqual([]);
  // What is within the limit, and larger than the limit of other requests, is taken.
  const note = 'x'.repeat(50_000);
  const wide = `component,material,mass,unit,note\n${Array.from({ length: 60 }, (_, n) => `anode,m${n},1,kg,${note}`).join('\n')}`;
  expect(wide.length).toBeGreaterThan(2 * 1024 * 1024);
  const { version_id } = await made(ask('POST', documentUrl('wide.csv', 'bill_of_materials'), wide, csv));
  await test.settle();
  expect((await made(ask('GET', `/v1/passports/documents/${version_id}`))).state).toBe('VALIDATED');
});

test('BPC-11: batteries: a serial number twice, a wrong month, a strange status: refused with row and column, none is added', {
  timeout: 120_000,
}, async () => {
  const test = await passportServer();
  const ask = await test.as('producer');
  await putModel(await test.as('operator'));
  const head = 'serial,manufactured_on,manufactured_at,status';
  for (const [lines, problem] of [
    [
      ['A-1,2027-01,Here,', 'A-2,2027-01,Here,', 'A-1,2027-01,Here,'],
      { code: 'DUPLICATE_SERIAL', row: 4, column: 'serial' },
    ],
    [['A-1,2027-13,Here,'], { code: 'INVALID_VALUE', row: 2, column: 'manufactured_on' }],
    [['A-1,2027-01,Here,new'], { row: 2, column: 'status' }],
    [['A-1,2027-01,,'], { code: 'MISSING_VALUE', row: 2, column: 'manufactured_at' }],
    [[`${'A'.repeat(21)},2027-01,Here,`], { row: 2, column: 'serial' }],
  ] as const) {
    const answer = await ask('POST', `${productUrl}/items`, [head, ...lines].join('\n'), csv);
    expect(answer).toMatchObject({
      status: 400,
      body: { error: { code: 'VALIDATION_ERROR', details: { problems: [problem] } } },
    });
    expect(answer.body.error.message).toMatch(/^body: row \d+, column \w+: /);
  }
  expect(await test.rows('select 1 from passports.passports')).toEqual([]);
  const good = [head, 'A-1,2027-01,Here,', 'A-2,2027-01,Here,reused'].join('\n');
  expect(await made(ask('POST', `${productUrl}/items`, good, csv))).toEqual({ added: 2, existing: [] });
  const more = [head, 'A-2,2027-02,There,', 'A-3,2027-01,Here,'].join('\n');
  expect(await made(ask('POST', `${productUrl}/items`, more, csv))).toEqual({ added: 1, existing: ['A-2'] });
  expect(await test.rows(`select manufactured_on as "on" from passports.items where serial = 'A-2'`)).toEqual(
    [{ on: '2027-01' }],
  );
  // A long list is read outside of the transaction.
  const long = [head, ...Array.from({ length: 1000 }, (_, at) => `B-${at},2027-01,Here,`)];
  expect(
    await ask('POST', `${productUrl}/items`, [...long, 'B-7,2027-01,Here,'].join('\n'), csv),
  ).toMatchObject({
    status: 400,
    body: { error: { details: { problems: [{ code: 'DUPLICATE_SERIAL', row: 1002 }] } } },
  });
  const keyed = { ...csv, 'idempotency-key': 'long' };
  for (let n = 0; n < 2; n += 1)
    expect(await made(ask('POST', `${productUrl}/items`, long.join('\n'), keyed))).toEqual({
      added: 1000,
      existing: [],
    });
});

test('BPC-5, BPC-13: two documents that contradict each other: the snapshot is FAILED and names both; corrected, it is built again', {
  timeout: 120_000,
}, async () => {
  const test = await passportServer();
  const ask = await test.as('operator');
  await putModel(ask);
  const sheet = (value: string) => `attribute,value,unit\nratedCapacity,${value},Ah\n`;
  for (const [name, value] of [
    ['one.csv', '151'],
    ['two.csv', '152'],
  ] as const)
    await made(ask('POST', documentUrl(name, 'data_sheet'), sheet(value), csv));
  await test.settle();
  const { id } = await made(ask('POST', `${productUrl}/snapshots`));
  await test.settle();
  const url = `/v1/passports/snapshots/${id}`;
  const { state, error } = await made(ask('GET', url));
  const { items } = await made(ask('GET', `/v1/passports/documents?product=${product.id}`));
  expect({ state, code: error.code, problems: error.problems.length }).toEqual({
    state: 'FAILED',
    code: 'DUPLICATE_FACT',
    problems: 2,
  });
  for (const { sha256 } of items) {
    expect(error.message).toContain(sha256);
    expect(error.problems).toContainEqual({ document: sha256, row: 2, column: 'value' });
  }
  expect((await made(ask('GET', `${productUrl}/progress`))).snapshot).toEqual({
    snapshot_id: id,
    state: 'FAILED',
    error: error.message,
  });
  // The job and the list say the same; a key that may only upload sees no snapshot.
  const failed = await made(ask('GET', '/v1/jobs?kind=passports.build-snapshot&status=FAILED'));
  expect(failed.items[0].last_error.code).toBe('DUPLICATE_FACT');
  expect((await made(ask('GET', '/v1/passports/snapshots'))).items).toMatchObject([{ id, state: 'FAILED' }]);
  const producer = await test.as('producer');
  expect((await producer('GET', url)).status).toBe(403);

  // Again without a correction: the same, once in the audit. Again with one: sealed.
  expect(await ask('POST', `${url}/build`)).toMatchObject({
    status: 202,
    body: { state: 'BUILDING', error: null },
  });
  await test.settle();
  expect(await made(ask('GET', url))).toMatchObject({ state: 'FAILED', error: { code: 'DUPLICATE_FACT' } });
  await made(ask('POST', documentUrl('two.csv', 'data_sheet'), sheet('151'), csv));
  await test.settle();
  await made(ask('POST', `${url}/build`));
  await test.settle();
  expect(await made(ask('GET', url))).toMatchObject({ state: 'SEALED', error: null, fact_count: 1 });
  expect(await ask('POST', `${url}/build`)).toMatchObject({
    status: 409,
    body: { error: { code: 'SNAPSHOT_SEALED', message: expect.stringContaining('build a new one') } },
  });
  expect(
    await test.rows(
      `select type from passports.audit_events where aggregate_type = 'snapshot' and aggregate_id = '${id}' order by seq`,
    ),
  ).toEqual(
    ['requested', 'failed', 'rebuilt', 'failed', 'rebuilt', 'sealed'].map((step) => ({
      type: `snapshot.${step}`,
    })),
  );
});
