import { expect, test } from 'vitest';
import { hexToBytes } from '../../../src/apps/passports/compile/hash.ts';
import { product } from '../../../src/apps/passports/compile/sample/index.ts';
import type { Reader } from '../../../src/apps/passports/compile/types.ts';
import { loadPassport } from '../../../src/apps/passports/public/load.ts';
import { furnishSample } from '../../../src/apps/passports/sample.ts';
import { isSignedBy } from '../../../src/apps/passports/signing/keys.ts';
import {
  findPassportOf,
  itemEventsOf,
  listVersions,
  type PassportVersion,
  predecessorsOf,
  type StoredPassport,
} from '../../../src/apps/passports/store/index.ts';
import { appendItemEvent } from '../../../src/apps/passports/write/item-events.ts';
import { addItems, addPredecessors, ceaseItem } from '../../../src/apps/passports/write/passports.ts';
import { drained } from '../../support/engine.ts';
import { issuedAt, passports, runChain, testKeys } from './support.ts';

test('BPC-11, BPC-17, SEC-5: the sample becomes active; items have signed events of a limited size, predecessors and an end', async () => {
  const bundle = await passports();
  const { on, change, means, tallyman, rows } = bundle;
  const steps: string[] = [];
  await furnishSample(tallyman, 'default', means, { issuedAt, progress: (step) => steps.push(step) });
  expect(steps).toHaveLength(9);
  await runChain(bundle);
  await drained(bundle);
  expect((await listVersions(on, { state: 'ACTIVE' })).items).toHaveLength(4);

  const [first, second] = await Promise.all(
    ['SP100-000001', 'SP100-000002'].map((serial) => findPassportOf(on, product.gtin, serial)),
  );
  const [one, two] = [first?.id ?? '', second?.id ?? ''];
  const event = { type: 'cycles', occurredAt: issuedAt, data: { cycles: 12 }, key: 'reading-1' };
  expect(await change((work) => appendItemEvent(work, means.keys, one, event))).toBe(1);
  expect(await change((work) => appendItemEvent(work, means.keys, one, event))).toBe(1);
  expect(await change((work) => appendItemEvent(work, means.keys, one, { ...event, key: 'reading-2' }))).toBe(
    2,
  );
  // Readers get 200 of them at once: a larger one is refused, counted in bytes as it is kept.
  const dataOf = (text: string) =>
    change((work) =>
      appendItemEvent(work, means.keys, one, { ...event, key: text.slice(0, 9), data: { text } }),
    );
  await expect(dataOf('ä'.repeat(8200))).rejects.toMatchObject({
    code: 'VALIDATION_ERROR',
    message: expect.stringContaining('at most 16384 (16 KiB) are allowed'),
  });
  const events = await itemEventsOf(on, one);
  expect(events.map(({ seq, data }) => ({ seq, data }))).toEqual([
    { seq: 2, data: { cycles: 12 } },
    { seq: 1, data: { cycles: 12 } },
  ]);
  const [version] = (await listVersions(on, { state: 'ACTIVE', passportId: one })).items;
  const readAs = async (reader: Reader) => {
    const place = { publicKeys: testKeys.publicKeys, origin: 'https://passports.example' };
    const found = { passport: first as StoredPassport, version: version as PassportVersion };
    return (await loadPassport(on, found, reader, place))?.source.individual.map(({ seq }) => seq);
  };
  // Not even read for who may not see it.
  expect([await readAs('public'), await readAs('legitimate_interest'), await readAs('owner')]).toEqual([
    [],
    [2, 1],
    [2, 1],
  ]);
  for (const { hash, signature } of events)
    expect(
      isSignedBy(
        testKeys.publicKeys['test-1'] as Uint8Array,
        hexToBytes(hash) ?? new Uint8Array(),
        signature,
      ),
    ).toBe(true);
  await expect(rows(`update passports.item_events set type = 'x'`)).rejects.toThrow(/never changed/);

  await change((work) => addPredecessors(work, two, [one]));
  expect((await predecessorsOf(on, two)).map(({ serial }) => serial)).toEqual(['SP100-000001']);
  await change((work) => ceaseItem(work, one, 'recycled'));
  expect((await findPassportOf(on, product.gtin, 'SP100-000001'))?.item).toMatchObject({
    status: 'waste',
    ceasedReason: 'recycled',
  });
  await expect(rows(`update passports.items set ceased_at = null, ceased_reason = null`)).rejects.toThrow(
    /has ceased/,
  );
  const item = {
    serial: 'X1',
    manufacturedOn: '2027-01',
    manufacturedAt: 'here',
    status: 'original',
  } as const;
  await expect(change((work) => addItems(work, product.id, [item, item]))).rejects.toMatchObject({
    code: 'VALIDATION_ERROR',
    message: expect.stringContaining('item 2, serial number "X1": the serial number is given twice'),
  });
});
