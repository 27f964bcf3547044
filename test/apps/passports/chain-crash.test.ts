import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { verifyAudit } from '../../../src/apps/passports/audit/verify.ts';
import { documents, product } from '../../../src/apps/passports/compile/sample/index.ts';
import { auditHeadsKind } from '../../../src/apps/passports/jobs/audit-heads.ts';
import { passportKinds } from '../../../src/apps/passports/jobs/index.ts';
import { listPassports, listVersions } from '../../../src/apps/passports/store/index.ts';
import { type NewDocument, uploadDocument } from '../../../src/apps/passports/write/documents.ts';
import { requestExport } from '../../../src/apps/passports/write/exports.ts';
import { newIssue } from '../../../src/apps/passports/write/issue.ts';
import { modelPassport } from '../../../src/apps/passports/write/passports.ts';
import { putProduct } from '../../../src/apps/passports/write/products.ts';
import { requestSnapshot } from '../../../src/apps/passports/write/snapshots.ts';
import { requestVersions } from '../../../src/apps/passports/write/versions.ts';
import { Database } from '../../../src/engine/database/database.ts';
import { TenantDatabase } from '../../../src/engine/database/tenant.ts';
import { GiveUpError } from '../../../src/engine/errors.ts';
import { start } from '../../cli/support.ts';
import { drained } from '../../support/engine.ts';
import { copyOf, type DatabaseCopy } from '../../support/postgres.ts';
import type { CrashTask } from './crash-worker.ts';
import {
  filledDatabase,
  issuedAt,
  keysAfterRotation,
  type PassportBundle,
  putSample,
  runToEnd,
} from './support.ts';

/** Everything that the chain leaves behind, but for times and what depends on them, and numbers that the database draws. */
const states = {
  versions: `select id, passport_id, number, state, snapshot_id, rules_id, model_version_id, product, item, issued_at, build, signing_key,
      salt, payload_hash, proof_hash, receipt_hash, encode(signature, 'hex') as signature, qr_text, encode(sha256(qr_png), 'hex') as png, error
    from passports.versions order by id`,
  artefacts: `select version_id, passports.digest(payload) as payload, passports.digest(proof) as proof, passports.digest(receipt) as receipt
    from passports.artefacts order by 1`,
  snapshots:
    'select id, product_id, state, hash, fact_count, next, error from passports.snapshots order by id',
  exports:
    'select id, version_id, format, reader, input, sha256, size, error from passports.exports order by id',
  lists: 'select snapshot_id, document_version_id from passports.snapshot_documents order by 1, 2',
  snapshotFacts: `select n.snapshot_id, f.fact_type, f.fact_key, f.payload_hash from passports.snapshot_facts n
    join passports.facts f on f.id = n.fact_id order by 1, 2, 3, 4`,
  documents: 'select id, state, fact_count, problems from passports.document_versions order by id',
  facts: `select f.fact_type, f.fact_key, f.payload_hash, f.payload, s.document_version_id, s.row_number, s.column_name
    from passports.facts f join passports.fact_sources s on s.fact_id = f.id order by 1, 2, 3, 5, 6, 7`,
  passports: 'select id, product_id, serial from passports.passports order by id',
  audit: 'select aggregate_type, aggregate_id, seq, type, data from passports.audit_events order by 1, 2, 3',
  outbox: 'select event_type, aggregate_id, payload::text from tallyman_events.events order by 1, 2, 3',
  deadLetters: `select kind, last_error ->> 'message' as error from tallyman.dead_letters`,
  // How many rounds it takes to cover all events depends on when each runs: \`covered\` looks at what they leave.
  jobs: `select kind, status, count(*) from (select kind, status::text from tallyman.history) h
    where kind <> 'passports.audit-heads' group by 1, 2 order by 1, 2`,
};

const leftBehind = async (database: DatabaseCopy) =>
  Object.fromEntries(
    await Promise.all(Object.entries(states).map(async ([name, sql]) => [name, await database.rows(sql)])),
  );

/** The audit trail holds, and signed heads cover all of it. */
async function covered({ url }: DatabaseCopy): Promise<void> {
  const database = await Database.connect({ url, poolSize: 2 });
  try {
    const report = await verifyAudit(new TenantDatabase(database, 'default'), keysAfterRotation);
    expect(report).toMatchObject({ broken: null, uncovered: 0 });
    expect(report.heads).toBeGreaterThan(0);
  } finally {
    await database.close();
  }
}

const others = {
  rejected: { ...product, id: 'other', gtin: '09520123456795' },
  contradictory: { ...product, id: 'contradictory', gtin: '09520123456801' },
  dead: { ...product, id: 'dead', gtin: '09520123456818' },
  rotated: { ...product, id: 'rotated', gtin: '09520123456825' },
};

const sheet = (productId: string, ah: number): NewDocument => ({
  productId,
  name: `${ah}.csv`,
  kind: 'data_sheet',
  format: 'csv',
  bytes: Buffer.from(`attribute,value,unit\nratedCapacity,${ah},Ah\n`),
});

/** Models whose documents are read: two that contradict each other, one whose build is a dead letter, one with a passport. */
async function prepareOthers(bundle: Omit<PassportBundle, 'work'>, rulesId: string): Promise<string> {
  const { change, means, tallyman } = bundle;
  await change(async (work) => {
    for (const other of Object.values(others)) await putProduct(work, other);
    for (const ah of [151, 152]) await uploadDocument(work, sheet(others.contradictory.id, ah));
    await uploadDocument(work, sheet(others.dead.id, 151));
    const next = newIssue(means, { rulesId, issuedAt });
    for (const { name, input } of documents)
      await uploadDocument(work, { productId: others.rotated.id, name, ...input, next });
  });
  await runToEnd(bundle);
  const kinds = passportKinds(means).map((kind) => ({
    ...kind,
    handler: () => {
      throw new GiveUpError('STORAGE_AWAY', 'the storage does not answer');
    },
  }));
  await change((work) => requestSnapshot(work, others.dead.id));
  const worker = tallyman.worker({ kinds, pollIntervalMs: 100 });
  await worker.start();
  await drained(bundle);
  await worker.stop();
  return change((work) => modelPassport(work, others.rotated.id));
}

/**
 * A first issue is done. What is to be done: a newer document with all that follows, a document to reject, versions to refuse,
 * one that was requested with a key that is rotated away, a snapshot that cannot be built, a dead letter to redrive, an
 * export to make and one that cannot be made, and heads over the audit events.
 */
async function prepare(bundle: Omit<PassportBundle, 'work'>): Promise<void> {
  const { change, means, on, tallyman } = bundle;
  const rulesId = await change((work) => putSample(work, means, 2));
  await runToEnd(bundle);
  const rotatedPassport = await prepareOthers(bundle, rulesId);
  const later = newIssue(means, {
    rulesId,
    issuedAt: new Date(issuedAt.getTime() + 1000),
    withItems: true,
  });
  const { items: passportsOfProduct } = await listPassports(on, { productId: product.id });
  const { items: versions } = await listVersions(on);
  const model = versions.find(({ item, product: { id } }) => item === null && id === product.id);
  const rotated = versions.find(({ passportId }) => passportId === rotatedPassport);
  const battery = versions.find(({ item }) => item !== null);
  const [document] = documents;
  if (!document || !model || !rotated || !battery) throw new Error('the sample has documents and versions');
  await change(async (work) => {
    await uploadDocument(work, {
      productId: product.id,
      name: document.name,
      ...document.input,
      bytes: Buffer.concat([document.input.bytes, Buffer.from('\n')]),
      next: later,
    });
    const bytes = Buffer.from('attribute,value\nnothing,1\n');
    await uploadDocument(work, {
      productId: others.rejected.id,
      name: 'bad',
      kind: 'data_sheet',
      format: 'csv',
      bytes,
      next: later,
    });
    await requestVersions(
      work,
      {
        ...later,
        build: 'another',
        product,
        snapshotId: model.snapshotId,
        modelVersionId: model.id,
      },
      passportsOfProduct
        .filter(({ serial }) => serial !== null)
        .map(({ id, item }) => ({ passportId: id, item: item && { ...itemOf(item) } })),
    );
    await requestVersions(
      work,
      {
        ...later,
        signingKey: 'test-0',
        product: others.rotated,
        snapshotId: rotated.snapshotId,
        modelVersionId: null,
      },
      [{ passportId: rotatedPassport, item: null }],
    );
    await requestSnapshot(work, others.contradictory.id, later);
    await requestExport(work, model.id, { format: 'bundle', reader: 'public', language: 'en' });
    await requestExport(work, battery.id, { format: 'catenax', reader: 'owner', language: 'en' });
  });
  await tallyman.enqueue(auditHeadsKind(tallyman.database, means), {});
}

const itemOf = ({ serial, manufacturedOn, manufacturedAt, status }: NonNullable<Parsed>) => ({
  serial,
  manufacturedOn,
  manufacturedAt,
  status,
});
type Parsed = Awaited<ReturnType<typeof listPassports>>['items'][number]['item'];

async function run(task: CrashTask): Promise<{ readonly died?: string; readonly came: readonly string[] }> {
  const { ended } = start('test/apps/passports/crash-worker.ts', [JSON.stringify(task)], {
    env: { NODE_COMPILE_CACHE: join(tmpdir(), 'tallyman-chaos-cache') },
  });
  const { code, signal, stdout, stderr } = await ended;
  const died = /^died (.+)$/m.exec(stdout)?.[1];
  if (died === undefined ? code !== 0 : signal !== 'SIGKILL')
    throw new Error(`the worker ended with ${signal ?? code}:\n${stdout}\n${stderr}`);
  const came = [...stdout.matchAll(/^came (.+)$/gm)].map(([, place = '']) => place);
  return died === undefined ? { came } : { died, came };
}

/** With a role for its tenants: the one that came along is that of the original. */
async function usableCopyOf(url: string): Promise<DatabaseCopy> {
  const copy = await copyOf(url);
  await copy.rows('select tallyman.prepare_tenant_role()');
  return copy;
}

const slices = 6;

test('BPC-1, BPC-8, BPC-11, BPC-14: killed after any statement of any handler or of a redrive, the chain ends in the state, the bytes and the events of an undisturbed run', {
  timeout: 1_500_000,
}, async () => {
  const template = await filledDatabase(prepare);
  const calm = await usableCopyOf(template);
  const { came } = await run({ url: calm.url, slice: null, slices, died: [] });
  const expected = await leftBehind(calm);
  expect(new Set(came.map((place) => place.split(' ')[0]))).toEqual(
    new Set(
      [
        'parse-facts',
        'build-snapshot',
        'compile-passport',
        'sign-passport',
        'generate-qr',
        'activate-version',
        'issue-items',
        'export-passport',
        'audit-heads',
      ]
        .map((kind) => `passports.${kind}`)
        .concat('redrive'),
    ),
  );
  await covered(calm);
  // All of it was to be seen: nothing that was to fail went well, and the other way round.
  const found = (name: keyof typeof states) => expected[name] as readonly Record<string, unknown>[];
  expect(found('deadLetters')).toEqual([]);
  expect(
    found('exports')
      .map(({ format, sha256 }) => [format, sha256 !== null])
      .sort(),
  ).toEqual([
    ['bundle', true],
    ['catenax', false],
  ]);
  const buildOf = ({ id }: { readonly id: string }) =>
    found('snapshots').find(({ product_id: productId }) => productId === id);
  expect(buildOf(others.dead)).toMatchObject({ state: 'SEALED', error: null });
  expect(buildOf(others.contradictory)).toMatchObject({
    state: 'BUILDING',
    error: { code: 'DUPLICATE_FACT' },
  });
  expect(found('audit').filter(({ type }) => type === 'version.rekeyed')).toHaveLength(1);
  const places = await Promise.all(
    Array.from({ length: slices }, async (_, slice) => {
      const database = await usableCopyOf(template);
      const died: string[] = [];
      for (;;) {
        const end = await run({ url: database.url, slice, slices, died });
        if (end.died === undefined) break;
        died.push(end.died);
        // It crashes more often than a job may that is left to itself, and no long wait is to follow.
        await database.rows('update tallyman.jobs set max_attempts = 1000');
      }
      expect(await leftBehind(database), `killed at ${died.join(', ')}`).toEqual(expected);
      await covered(database);
      return died;
    }),
  );
  // Every statement that a handler makes in an undisturbed run was the last one of some process.
  const lastOnes = new Set(places.flat().map(statementOf));
  expect(came.map(statementOf).filter((statement) => !lastOnes.has(statement))).toEqual([]);
  expect(lastOnes.size).toBeGreaterThan(90);
});

/** Handler and statement, without the way to it: that depends on what else the process has done. */
const statementOf = (place: string): string => place.split(' ').slice(0, 2).join(' ');
