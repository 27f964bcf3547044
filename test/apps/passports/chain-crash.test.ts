import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { documents, product } from '../../../src/apps/passports/compile/sample/index.ts';
import { listPassports, listVersions } from '../../../src/apps/passports/store/index.ts';
import { uploadDocument } from '../../../src/apps/passports/write/documents.ts';
import { newIssue } from '../../../src/apps/passports/write/issue.ts';
import { putProduct } from '../../../src/apps/passports/write/products.ts';
import { requestVersions } from '../../../src/apps/passports/write/versions.ts';
import { start } from '../../cli/support.ts';
import { copyOf, type DatabaseCopy } from '../../support/postgres.ts';
import type { CrashTask } from './crash-worker.ts';
import { filledDatabase, issuedAt, type PassportBundle, putSample, runToEnd } from './support.ts';

/** Everything that the chain leaves behind, but for times and what depends on them, and numbers that the database draws. */
const states = {
  versions: `select id, passport_id, number, state, snapshot_id, rules_id, model_version_id, product, item, issued_at, build, signing_key,
      salt, payload_hash, proof_hash, receipt_hash, encode(signature, 'hex') as signature, qr_text, encode(sha256(qr_png), 'hex') as png, error
    from passports.versions order by id`,
  artefacts: `select version_id, passports.digest(payload) as payload, passports.digest(proof) as proof, passports.digest(receipt) as receipt
    from passports.artefacts order by 1`,
  snapshots: 'select id, product_id, state, hash, fact_count from passports.snapshots order by id',
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
  jobs: `select kind, status, count(*) from (select kind, status::text from tallyman.history) h group by 1, 2 order by 1, 2`,
};

const leftBehind = async (database: DatabaseCopy) =>
  Object.fromEntries(
    await Promise.all(Object.entries(states).map(async ([name, sql]) => [name, await database.rows(sql)])),
  );

/** A first issue is done. What is to be done: a newer document with all that follows, a document to reject, versions to refuse. */
async function prepare(bundle: Omit<PassportBundle, 'work'>): Promise<void> {
  const { change, means, on } = bundle;
  const rulesId = await change((work) => putSample(work, means, 2));
  await runToEnd(bundle);
  const later = newIssue(means, {
    rulesId,
    issuedAt: new Date(issuedAt.getTime() + 1000),
    withItems: true,
  });
  const { items: passportsOfProduct } = await listPassports(on, { productId: product.id });
  const { items: versions } = await listVersions(on);
  const model = versions.find(({ item }) => item === null);
  const [document] = documents;
  if (!document || !model) throw new Error('the sample has documents and a model');
  await change(async (work) => {
    await uploadDocument(work, {
      productId: product.id,
      name: document.name,
      ...document.input,
      bytes: Buffer.concat([document.input.bytes, Buffer.from('\n')]),
      next: later,
    });
    const other = { ...product, id: 'other', gtin: '09520123456795' };
    await putProduct(work, other);
    const bytes = Buffer.from('attribute,value\nnothing,1\n');
    await uploadDocument(work, {
      productId: other.id,
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
  });
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

const slices = 6;

test('BPC-8, BPC-11: killed after any statement of any handler, the chain ends in the state, the bytes and the events of an undisturbed run', {
  timeout: 900_000,
}, async () => {
  const template = await filledDatabase(prepare);
  const calm = await copyOf(template);
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
      ].map((kind) => `passports.${kind}`),
    ),
  );
  const places = await Promise.all(
    Array.from({ length: slices }, async (_, slice) => {
      const database = await copyOf(template);
      const died: string[] = [];
      for (;;) {
        const end = await run({ url: database.url, slice, slices, died });
        if (end.died === undefined) break;
        died.push(end.died);
        // It crashes more often than a job may that is left to itself.
        await database.rows('update tallyman.jobs set max_attempts = 1000');
      }
      expect(await leftBehind(database), `killed at ${died.join(', ')}`).toEqual(expected);
      return died;
    }),
  );
  // Every statement that a handler makes in an undisturbed run was the last one of some process.
  const lastOnes = new Set(places.flat().map(statementOf));
  expect(came.map(statementOf).filter((statement) => !lastOnes.has(statement))).toEqual([]);
  expect(lastOnes.size).toBeGreaterThan(60);
});

/** Handler and statement, without the way to it: that depends on what else the process has done. */
const statementOf = (place: string): string => place.split(' ').slice(0, 2).join(' ');
