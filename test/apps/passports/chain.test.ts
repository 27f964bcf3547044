import { expect, test } from 'vitest';
import { parseQr } from '../../../src/apps/passports/compile/qr.ts';
import { product } from '../../../src/apps/passports/compile/sample/index.ts';
import { verify } from '../../../src/apps/passports/compile/verify.ts';
import {
  artefactsOf,
  findPassportOf,
  listDocumentVersions,
  listVersions,
  requireVersion,
} from '../../../src/apps/passports/store/index.ts';
import { drained } from '../../support/engine.ts';
import { passports, putSample, runChain, testKeys } from './support.ts';

test('BPC-1, BPC-2, BPC-9, BPC-10, BPC-11: documents become active passports of a model and its items, each event once', async () => {
  const bundle = await passports();
  const { on, rows, change, means } = bundle;
  await change((work) => putSample(work, means));
  await runChain(bundle);
  await drained(bundle);

  const documents = await listDocumentVersions(on, { productId: product.id });
  expect(documents.items.map(({ state }) => state)).toEqual(documents.items.map(() => 'VALIDATED'));
  const versions = await listVersions(on, { productId: product.id });
  expect(versions.items.map(({ state, error }) => ({ state, error }))).toEqual(
    Array.from({ length: 4 }, () => ({ state: 'ACTIVE', error: null })),
  );
  const item = await findPassportOf(on, product.gtin, 'SP100-000002');
  const version = await requireVersion(on, item?.activeVersionId ?? '');
  const artefacts = await artefactsOf(on, version.id);
  expect(version.qrText).toHaveLength(212);
  expect(parseQr(version.qrText ?? '')?.receiptHash).toBe(version.receiptHash);
  expect(artefacts?.receipt.model?.version).toBe(version.modelVersionId);
  const verified = verify({
    qr: version.qrText ?? '',
    receipt: artefacts?.texts.receipt ?? '',
    signature: version.signature ?? new Uint8Array(),
    publicKeys: testKeys.publicKeys,
    payload: artefacts?.texts.payload ?? '',
    proof: artefacts?.texts.proof ?? '',
  });
  expect(verified.mismatches).toEqual([]);
  expect(
    await rows(`select event_type as type, count(*)::int from tallyman_events.events group by 1 order by 1`),
  ).toEqual([
    { type: 'document.version.validated', count: 7 },
    { type: 'passport.version.active', count: 4 },
    { type: 'passport.version.signed', count: 4 },
    { type: 'rules.version.published', count: 1 },
  ]);
});
