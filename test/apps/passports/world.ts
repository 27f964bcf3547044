import { extendHead } from '../../../src/apps/passports/audit/head.ts';
import { product } from '../../../src/apps/passports/compile/sample/index.ts';
import type { PassportVersion } from '../../../src/apps/passports/store/index.ts';
import { findPassportOf, listVersions } from '../../../src/apps/passports/store/index.ts';
import { uploadDocument } from '../../../src/apps/passports/write/documents.ts';
import { requestExport } from '../../../src/apps/passports/write/exports.ts';
import { newIssue } from '../../../src/apps/passports/write/issue.ts';
import { appendItemEvent } from '../../../src/apps/passports/write/item-events.ts';
import { addPredecessors, ceaseItem } from '../../../src/apps/passports/write/passports.ts';
import { putProduct } from '../../../src/apps/passports/write/products.ts';
import { requestSnapshot } from '../../../src/apps/passports/write/snapshots.ts';
import { revokeVersion } from '../../../src/apps/passports/write/version-steps.ts';
import { requestModelVersion } from '../../../src/apps/passports/write/versions.ts';
import { drained } from '../../support/engine.ts';
import { issuedAt, type PassportBundle, passports, putSample, runChain } from './support.ts';

export interface World extends PassportBundle {
  readonly rulesId: string;
  readonly versions: readonly PassportVersion[];
}

/** A tenant with a row in every state: nothing in the schema is empty, and a signed head covers all of it. */
export async function world(): Promise<World> {
  const bundle = await passports();
  const { on, change, means } = bundle;
  const rulesId = await change((work) => putSample(work, means));
  await runChain(bundle);
  await drained(bundle);
  const other = { ...product, id: 'other', gtin: '09520123456795' };
  await change(async (work) => {
    await putProduct(work, other);
    const bytes = Buffer.from('attribute,value\nnothing,1\n');
    await uploadDocument(work, {
      productId: other.id,
      name: 'bad',
      kind: 'data_sheet',
      format: 'csv',
      bytes,
    });
    // Two that contradict each other: no snapshot can be built of them.
    for (const ah of [151, 152])
      await uploadDocument(work, {
        productId: other.id,
        name: `${ah}.csv`,
        kind: 'data_sheet',
        format: 'csv',
        bytes: Buffer.from(`attribute,value,unit\nratedCapacity,${ah},Ah\n`),
      });
    const later = newIssue(means, { rulesId, issuedAt: new Date(issuedAt.getTime() + 1000) });
    await requestModelVersion(work, product.id, later);
    const failing = newIssue(
      { ...means, build: 'another' },
      { rulesId, issuedAt: new Date(issuedAt.getTime() + 2000) },
    );
    await requestModelVersion(work, product.id, failing);
  });
  await drained(bundle);
  const [one, two, three] = await Promise.all(
    ['SP100-000001', 'SP100-000002', 'SP100-000003'].map(async (serial) => {
      const found = await findPassportOf(on, product.gtin, serial);
      if (!found?.activeVersionId) throw new Error(`${serial} has no active version`);
      return { id: found.id, versionId: found.activeVersionId };
    }),
  );
  if (!one || !two || !three) throw new Error('the sample has three items');
  for (const cycles of [12, 14])
    await change((work) =>
      appendItemEvent(work, means.keys, one.id, {
        type: 'cycles',
        occurredAt: issuedAt,
        data: { cycles },
        key: `reading-${cycles}`,
      }),
    );
  // One export that is made, and one that cannot be: Catena-X needs more than the passport has.
  await change(async (work) => {
    for (const format of ['json', 'catenax'] as const)
      await requestExport(work, two.versionId, { format, reader: 'owner', language: 'en' });
    await requestSnapshot(work, other.id);
  });
  await drained(bundle);
  await change(async (work) => {
    await addPredecessors(work, two.id, [one.id]);
    await ceaseItem(work, one.id, 'recycled');
    await revokeVersion(work, three.versionId, 'wrong label');
    await extendHead(work.on, means.keys);
  });
  return { ...bundle, rulesId, versions: (await listVersions(on, {}, { limit: 100 })).items };
}
