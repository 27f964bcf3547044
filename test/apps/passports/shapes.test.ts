import { expect, test } from 'vitest';
import { documents, items, product, rulePackage } from '../../../src/apps/passports/compile/sample/index.ts';
import { passportKinds } from '../../../src/apps/passports/jobs/index.ts';
import {
  listDocumentVersions,
  listPassports,
  listVersions,
} from '../../../src/apps/passports/store/index.ts';
import { randomFresh, type Work } from '../../../src/apps/passports/work.ts';
import { uploadDocument } from '../../../src/apps/passports/write/documents.ts';
import { newIssue } from '../../../src/apps/passports/write/issue.ts';
import { addItems } from '../../../src/apps/passports/write/passports.ts';
import { putProduct } from '../../../src/apps/passports/write/products.ts';
import { publishRulePackage, putRulePackage } from '../../../src/apps/passports/write/rules.ts';
import { requestVersions } from '../../../src/apps/passports/write/versions.ts';
import { TenantDatabase } from '../../../src/engine/database/tenant.ts';
import {
  changeIn,
  issuedAt,
  type PassportBundle,
  passports,
  putSample,
  runToEnd,
  testMeans,
} from './support.ts';

const left = ({ rows }: PassportBundle) =>
  Promise.all(
    [
      'select tenant_id, id, state, receipt_hash, error from passports.versions order by id',
      'select aggregate_id, seq, type, data from passports.audit_events order by 1, 2',
      'select id from passports.snapshots order by 1',
      'select event_type, aggregate_id, payload::text from tallyman_events.events order by 1, 2, 3',
    ].map((sql) => rows(sql)),
  );

test('BPC-11: every job of the chain run again after it succeeded changes nothing and tells nobody again', async () => {
  const bundle = await passports();
  const { change, means, tallyman, rows } = bundle;
  await change((work) => putSample(work, means, 2));
  await runToEnd(bundle);
  const before = await left(bundle);
  const done = await rows<{ kind: string; payload: unknown }>(
    `select kind, payload from tallyman.history where kind like 'passports.%' order by id`,
  );
  expect(new Set(done.map(({ kind }) => kind)).size).toBe(7);
  const kinds = new Map(passportKinds(means).map((kind) => [kind.name, kind]));
  for (const { kind, payload } of done) {
    const known = kinds.get(kind);
    if (!known) throw new Error(`there is no kind ${kind}`);
    await tallyman.enqueue(known, payload, { tenantId: 'default' });
  }
  await runToEnd(bundle);
  expect(await left(bundle)).toEqual(before);
});

test('BPC-11, BPC-13: a version that cannot be compiled stops none of its batch, and says why', async () => {
  const bundle = await passports();
  const { change, means, on } = bundle;
  const rulesId = await change((work) => putSample(work, means, 3));
  await runToEnd(bundle);
  const issue = newIssue(means, { rulesId, issuedAt: new Date(issuedAt.getTime() + 1000) });
  const model = (await listVersions(on)).items.find(({ item }) => item === null);
  const [item] = items;
  if (!model || !item) throw new Error('the sample has a model and items');
  const owned = (await listPassports(on, { productId: product.id })).items.filter(
    ({ serial }) => serial !== null,
  );
  const ids = await change((work) =>
    requestVersions(
      work,
      { ...issue, product, snapshotId: model.snapshotId, modelVersionId: model.id },
      owned.map(({ id, serial }, n) => ({
        passportId: id,
        item: { ...item, serial: serial ?? '', manufacturedOn: n === 1 ? 'some day' : '2027-01' },
      })),
    ),
  );
  await runToEnd(bundle);
  const versions = (await listVersions(on)).items.filter(({ id }) => ids.includes(id));
  expect(versions.map(({ state }) => state).sort()).toEqual(['ACTIVE', 'ACTIVE', 'COMPILING']);
  expect(versions.find(({ state }) => state === 'COMPILING')?.error).toMatchObject({
    code: 'VALIDATION_ERROR',
    message: expect.stringContaining('some day'),
  });
});

/** A model of its own with one item; a rejected document first if it is a poisoned one. */
async function putModel(work: Work, build: PassportBundle['means'], n: number, poisoned = false) {
  const own = { ...product, id: `model-${n}`, gtin: gtins[n] ?? '' };
  await putProduct(work, own);
  await addItems(work, own.id, [{ ...(items[0] as (typeof items)[number]), serial: `M${n}` }]);
  const rulesId = await putRulePackage(work, rulePackage);
  await publishRulePackage(work, rulesId, build.build);
  const next = newIssue(build, { rulesId, issuedAt, withItems: true });
  if (poisoned)
    await uploadDocument(work, {
      productId: own.id,
      name: 'poison',
      kind: 'bill_of_materials',
      format: 'csv',
      bytes: Buffer.from([0xff, 0xfe, 0x00, 0x2c]),
      next,
    });
  for (const { name, input } of documents)
    await uploadDocument(work, { productId: own.id, name, ...input, next });
}
const gtins = ['09520123456795', '09520123456801', '09520123456818', '09520123456825', '09520123456832'].map(
  (gtin) => gtin.slice(0, 13) + checkDigit(gtin),
);
function checkDigit(gtin: string): string {
  const sum = [...gtin.slice(0, 13)].reduce(
    (total, digit, at) => total + Number(digit) * (at % 2 === 0 ? 3 : 1),
    0,
  );
  return String((10 - (sum % 10)) % 10);
}

test('BPC-2, BPC-11: many models of two tenants at once; a document that cannot be read stops its own model alone', async () => {
  const bundle = await passports(testMeans({ fresh: randomFresh }));
  const { tallyman, means } = bundle;
  for (const tenant of ['default', 'second'])
    await changeIn(tallyman, tenant, means, async (work) => {
      for (let n = 0; n < 4; n += 1) await putModel(work, means, n, n === 2);
    });
  await runToEnd(bundle);
  for (const tenant of ['default', 'second']) {
    const on = new TenantDatabase(tallyman.database, tenant);
    const rejected = (await listDocumentVersions(on, { state: 'REJECTED' })).items;
    expect(rejected.map(({ productId, name }) => [productId, name])).toEqual([['model-2', 'poison']]);
    for (const n of [0, 1, 2, 3]) {
      const { items: versions } = await listVersions(on, { productId: `model-${n}` });
      expect(
        versions.map(({ state }) => state),
        `model-${n} of ${tenant}`,
      ).toEqual(n === 2 ? [] : ['ACTIVE', 'ACTIVE']);
    }
  }
});

test('BPC-11: a model with more items than one job takes: each gets one version', async () => {
  const bundle = await passports();
  const { change, means, rows } = bundle;
  await change((work) => putSample(work, means, 520));
  await runToEnd(bundle);
  expect(await rows(`select state, count(*)::int from passports.versions group by 1`)).toEqual([
    { state: 'ACTIVE', count: 521 },
  ]);
  expect(
    await rows(
      `select count(*)::int from tallyman_events.events where event_type = 'passport.version.active'`,
    ),
  ).toEqual([{ count: 521 }]);
});
