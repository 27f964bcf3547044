import { expect, onTestFinished, test } from 'vitest';
import { verifyAudit } from '../../../src/apps/passports/audit/verify.ts';
import { product } from '../../../src/apps/passports/compile/sample/index.ts';
import { passportKinds } from '../../../src/apps/passports/jobs/index.ts';
import { replayVersion } from '../../../src/apps/passports/replay.ts';
import { keyRing } from '../../../src/apps/passports/signing/keys.ts';
import { requireProductionKey } from '../../../src/apps/passports/signing/ring.ts';
import {
  artefactsOf,
  auditEventsOf,
  listVersions,
  requireVersion,
} from '../../../src/apps/passports/store/index.ts';
import { newIssue } from '../../../src/apps/passports/write/issue.ts';
import { putProduct } from '../../../src/apps/passports/write/products.ts';
import { requestModelVersion } from '../../../src/apps/passports/write/versions.ts';
import { until } from '../../support/until.ts';
import { issuedAt, passports, putSample, runToEnd, testKeys, testMeans } from './support.ts';

const base64 = (bytes: Uint8Array | undefined): string => Buffer.from(bytes ?? []).toString('base64');
const oldKey = `test-1=${base64(testKeys.publicKeys['test-1'])}`;
const rotated = (publicKeys: string | null) =>
  keyRing({
    'passports.signingKey': Buffer.alloc(32, 9).toString('base64'),
    'passports.signingKeyId': 'test-2',
    'passports.publicKeys': publicKeys,
  });

test('BPC-9: after a rotation versions are signed with the new key, also those that were requested before, and old ones verify by theirs', async () => {
  const bundle = await passports();
  const { change, on } = bundle;
  const rulesId = await change((work) => putSample(work, bundle.means, 1));
  await runToEnd(bundle);
  // Requested before the rotation, compiled and signed after it.
  const late = newIssue(bundle.means, { rulesId, issuedAt: new Date(issuedAt.getTime() + 1000) });
  await change((work) => requestModelVersion(work, product.id, late));
  const means = testMeans({ keys: rotated(oldKey) });
  await runToEnd({ ...bundle, means });
  const issue = newIssue(means, { rulesId, issuedAt: new Date(issuedAt.getTime() + 2000) });
  await change((work) => requestModelVersion(work, product.id, issue));
  await runToEnd({ ...bundle, means });

  const { items } = await listVersions(on);
  expect(
    items
      .filter(({ item }) => item === null)
      .sort((a, b) => a.number - b.number)
      .map(({ signingKey, state, error }) => [signingKey, state, error?.code]),
  ).toEqual([
    ['test-1', 'SUPERSEDED', undefined],
    ['test-2', 'SUPERSEDED', undefined],
    ['test-2', 'ACTIVE', undefined],
  ]);
  for (const { id, signature } of items) if (signature !== null) await replayVersion(on, id, means);
  expect((await verifyAudit(on, means.keys)).broken).toBeNull();
  const forgetful = testMeans({ keys: rotated(null) });
  const old = items.find(({ item, number }) => item === null && number === 1);
  await expect(replayVersion(on, old?.id ?? '', forgetful)).rejects.toMatchObject({
    code: 'REPLAY_MISMATCH',
    details: { differences: ['signature (public key "test-1" is not known)'] },
  });
});

/** A version that is compiled with the first key, and whose job to sign it waits for a worker with other keys. */
async function compiledBeforeRotation() {
  const bundle = await passports();
  const { change, means, on } = bundle;
  const rulesId = await change((work) => putSample(work, means, 1));
  await runToEnd(bundle);
  const issue = newIssue(means, { rulesId, issuedAt: new Date(issuedAt.getTime() + 1000), withItems: true });
  const id = await change((work) => requestModelVersion(work, product.id, issue));
  const worker = bundle.tallyman.worker({
    kinds: passportKinds(means).filter(({ name }) => name === 'passports.compile-passport'),
    pollIntervalMs: 100,
  });
  await worker.start();
  await until('it is compiled', async () => (await requireVersion(on, id ?? '')).receiptHash !== null);
  await worker.stop();
  return { ...bundle, rulesId, version: await requireVersion(on, id ?? '') };
}

test('BPC-8, BPC-9: compiled before a rotation and signed after it: compiled again for the current key, with its batteries', async () => {
  const bundle = await compiledBeforeRotation();
  const { on, version: before } = bundle;
  const means = testMeans({ keys: rotated(oldKey) });
  await runToEnd({ ...bundle, means });
  const after = await requireVersion(on, before.id);
  expect(after).toMatchObject({ state: 'ACTIVE', signingKey: 'test-2', error: null });
  // Everything but the key is what was fixed when it was requested; the receipt names the key, and so is another one.
  expect(after.payloadHash).toBe(before.payloadHash);
  expect(after.receiptHash).not.toBe(before.receiptHash);
  expect((await artefactsOf(on, before.id))?.receipt.signing_key).toBe('test-2');
  expect((await auditEventsOf(on, 'version', before.id)).map(({ type }) => type)).toEqual(
    ['requested', 'compiled', 'rekeyed', 'signed', 'labelled', 'active'].map((step) => `version.${step}`),
  );
  const { items } = await listVersions(on);
  const battery = items.find(({ modelVersionId }) => modelVersionId === before.id);
  expect(battery).toMatchObject({ state: 'ACTIVE', signingKey: 'test-2' });
  for (const { id } of items) await replayVersion(on, id, means);
  expect((await verifyAudit(on, means.keys)).broken).toBeNull();
  await expect(
    bundle.rows(`update passports.versions set signing_key = 'x', receipt_hash = repeat('0', 64)`),
  ).rejects.toThrow(/inputs of version \S+ are fixed/);
});

test('BPC-9, BPC-13: a process that does not know the key of a version does not sign it with its own; it says what to do, and its job run again signs', async () => {
  const bundle = await compiledBeforeRotation();
  const { on, version, tallyman } = bundle;
  await runToEnd({ ...bundle, means: testMeans({ keys: rotated(null) }) });
  expect(await requireVersion(on, version.id)).toMatchObject({
    state: 'COMPILING',
    receiptHash: version.receiptHash,
    error: {
      code: 'SIGNING_KEY_MISSING',
      message: expect.stringMatching(/add its public key to BPC_PUBLIC_KEYS.*tallyman jobs retry/),
    },
  });
  const failed = await tallyman.jobs.list({ kind: 'passports.sign-passport', status: 'FAILED' });
  expect(failed.items).toHaveLength(1);
  await tallyman.jobs.retry(failed.items[0]?.id ?? '');
  const means = testMeans({ keys: rotated(oldKey) });
  await runToEnd({ ...bundle, means });
  expect(await requireVersion(on, version.id)).toMatchObject({
    state: 'ACTIVE',
    signingKey: 'test-2',
    error: null,
  });
  await replayVersion(on, version.id, means);
  expect((await verifyAudit(on, means.keys)).broken).toBeNull();
});

test('BPC-9: a new key under an old id, and half a configuration, are refused', () => {
  expect(() => rotated(`test-2=${base64(testKeys.publicKeys['test-1'])}`)).toThrow(
    /give the new key a new id/,
  );
  expect(() =>
    keyRing({
      'passports.signingKey': Buffer.alloc(32, 9).toString('base64'),
      'passports.signingKeyId': null,
      'passports.publicKeys': null,
    }),
  ).toThrow(/belong together/);
});

test('BPC-9: in production the app does not start without a key, once it has something to sign', async () => {
  const { NODE_ENV: mode } = process.env;
  onTestFinished(() => {
    process.env.NODE_ENV = mode;
  });
  const { tallyman, change } = await passports();
  const none = keyRing({
    'passports.signingKey': null,
    'passports.signingKeyId': null,
    'passports.publicKeys': oldKey,
  });
  process.env.NODE_ENV = 'production';
  await requireProductionKey(none, tallyman.database);
  await change((work) => putProduct(work, product));
  await expect(requireProductionKey(none, tallyman.database)).rejects.toMatchObject({
    code: 'SIGNING_KEY_MISSING',
    message: expect.stringContaining('BPC_SIGNING_KEY_ID'),
  });
  await requireProductionKey(testKeys, tallyman.database);
  process.env.NODE_ENV = 'test';
  await requireProductionKey(none, tallyman.database);
});
