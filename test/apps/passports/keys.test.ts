import { expect, onTestFinished, test } from 'vitest';
import { verifyAudit } from '../../../src/apps/passports/audit/verify.ts';
import { product } from '../../../src/apps/passports/compile/sample/index.ts';
import { replayVersion } from '../../../src/apps/passports/replay.ts';
import { keyRing } from '../../../src/apps/passports/signing/keys.ts';
import { requireProductionKey } from '../../../src/apps/passports/signing/ring.ts';
import { listVersions } from '../../../src/apps/passports/store/index.ts';
import { newIssue } from '../../../src/apps/passports/write/issue.ts';
import { putProduct } from '../../../src/apps/passports/write/products.ts';
import { requestModelVersion } from '../../../src/apps/passports/write/versions.ts';
import { issuedAt, passports, putSample, runToEnd, testKeys, testMeans } from './support.ts';

const base64 = (bytes: Uint8Array | undefined): string => Buffer.from(bytes ?? []).toString('base64');
const oldKey = `test-1=${base64(testKeys.publicKeys['test-1'])}`;
const rotated = (publicKeys: string | null) =>
  keyRing({
    'passports.signingKey': Buffer.alloc(32, 9).toString('base64'),
    'passports.signingKeyId': 'test-2',
    'passports.publicKeys': publicKeys,
  });

test('BPC-9: after a rotation new versions have the new key, and old ones verify by theirs', async () => {
  const bundle = await passports();
  const { change, on } = bundle;
  const rulesId = await change((work) => putSample(work, bundle.means, 1));
  await runToEnd(bundle);
  // Requested before the rotation, compiled after it: its key is fixed, and this process does not have it any more.
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
    ['test-1', 'COMPILING', 'SIGNING_KEY_MISSING'],
    ['test-2', 'ACTIVE', undefined],
  ]);
  for (const { id, signature } of items) if (signature !== null) await replayVersion(on, id, means);
  expect((await verifyAudit(on, means.keys)).broken).toBeNull();
  const forgetful = testMeans({ keys: rotated(null) });
  const old = items.find(({ state }) => state === 'SUPERSEDED');
  await expect(replayVersion(on, old?.id ?? '', forgetful)).rejects.toMatchObject({
    code: 'REPLAY_MISMATCH',
    details: { differences: ['signature (public key "test-1" is not known)'] },
  });
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
