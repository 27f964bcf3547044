import { Code, ConnectError } from '@connectrpc/connect';
import { describe, expect, test } from 'vitest';
import { pullOnce } from '../../../src/apps/boundary/handoff/pull.ts';
import { pushOnce } from '../../../src/apps/boundary/handoff/push.ts';
import { reconcileWithPeer } from '../../../src/apps/boundary/reconcile/reconcile.ts';
import { redrive } from '../../../src/apps/boundary/redrive.ts';
import { into, out, pulling, twoZones } from './two-zones.ts';

type Pushing = Awaited<ReturnType<typeof twoZones>>;
type Zones = Pick<Pushing, 'plant' | 'enterprise' | 'append'>;

const signal = new AbortController().signal;
const page = { after: 0, limit: 100 };
const cut = () => new ConnectError('the line was cut', Code.Unavailable);
const large = 'x'.repeat(5000);

/** The second fact is too large for the other zone. */
async function appendPoison({ enterprise, append }: Zones): Promise<void> {
  enterprise.receiveLimits.maxRecordBytes = 2000;
  await append('a');
  await append('poison', large);
  await append('b');
}

/** The receiver has them, and the sender knows nothing of it. */
async function expectOnlyThere({ plant, enterprise }: Zones): Promise<void> {
  expect(await enterprise.store.quarantined(into, page)).toHaveLength(1);
  expect(await plant.store.quarantined(out, page)).toEqual([]);
  expect(await plant.store.receipts(out, page)).toEqual([]);
}

async function expectOnBothSides({ plant, enterprise }: Zones): Promise<void> {
  expect(await plant.store.receipts(out, page)).toEqual(await enterprise.store.receipts(into, page));
  const expected = { offset: 2, messageId: 'poison', reason: 'too_large' };
  expect(await enterprise.store.quarantined(into, page)).toMatchObject([expected]);
  expect(await plant.store.quarantined(out, page)).toMatchObject([expected]);
}

/** The limit is raised: the fact crosses after all, and both sides know. */
async function expectRedriven({ plant, enterprise }: Zones, carry: () => Promise<number>): Promise<void> {
  enterprise.receiveLimits.maxRecordBytes = 1024 * 1024;
  const { store, objects, admission } = plant;
  const { offset } = await redrive({ store, objects, admission, stream: out }, { offset: 2 });
  await carry();
  for (const kept of [
    await enterprise.store.quarantined(into, page),
    await plant.store.quarantined(out, page),
  ])
    expect(kept).toMatchObject([{ offset: 2, resolution: { how: 'redriven', by: offset } }]);
  expect(
    (await enterprise.store.read(into, { after: offset - 1, limit: 1, maxBytes: 1 }))[0]?.record,
  ).toMatchObject({
    object: JSON.stringify(large),
  });
}

/** A peer that takes what is delivered, and whose answer is lost. */
const silent = ({ options: { peer } }: Pushing): Pushing['options']['peer'] => ({
  ...peer,
  deliverFacts: async (...args) => {
    await peer.deliverFacts(...args);
    throw cut();
  },
});

describe('a lost answer, by push', () => {
  test.each([
    ['nothing', 0],
    ['more facts', 30],
  ])('BND-8: quarantine and receipt are on both sides, with %s behind it', async (_, more) => {
    const zones = await twoZones();
    await appendPoison(zones);
    await expect(pushOnce({ ...zones.options, peer: silent(zones) }, 0, signal)).rejects.toThrow('cut');
    await expectOnlyThere(zones);
    for (let n = 1; n <= more; n++) await zones.append(`more${n}`);
    while ((await zones.push()) > 0);
    await expectOnBothSides(zones);
    await expectRedriven(zones, zones.push);
  });

  test('BND-8: a call that is made again at once gets the answer of the first one', async () => {
    const zones = await twoZones();
    const { peer } = zones.options;
    await appendPoison(zones);
    const repeating: typeof peer = {
      ...peer,
      deliverFacts: async (...args) => {
        await peer.deliverFacts(...args);
        return peer.deliverFacts(...args);
      },
    };
    expect(await pushOnce({ ...zones.options, peer: repeating }, 0, signal)).toBe(3);
    await expectOnBothSides(zones);
    await expectRedriven(zones, zones.push);
  });

  test('BND-10: what was received is not confirmed by receipts that the other zone has not signed', async () => {
    const zones = await twoZones();
    await appendPoison(zones);
    await expect(pushOnce({ ...zones.options, peer: silent(zones) }, 0, signal)).rejects.toThrow('cut');
    const forged = { ...zones.options, isGenuine: () => false };
    await expect(pushOnce(forged, 0, signal)).rejects.toMatchObject({ reason: 'bad_receipt' });
    expect((await zones.plant.store.consumers(out))[0]?.cursor).toBe(0);
  });

  test('BND-8: what was dropped here meanwhile does not keep the receipt from being kept', async () => {
    const zones = await twoZones();
    const { plant, append, push } = zones;
    await appendPoison(zones);
    await expect(pushOnce({ ...zones.options, peer: silent(zones) }, 0, signal)).rejects.toThrow('cut');
    for (let n = 1; n <= 3; n++) await append(`more${n}`);
    const { epoch = '' } = (await plant.store.state(out)) ?? {};
    const fifth = (await zones.all(plant, out))[4];
    await plant.store.drop(out, { from: 1, to: 5, chain: fifth?.chain ?? '', epoch });
    while ((await push()) > 0);
    expect(await plant.store.receipts(out, page)).toEqual(await zones.enterprise.store.receipts(into, page));
    expect((await plant.store.consumers(out))[0]?.cursor).toBe(6);
  });
});

/** With the limits of the enterprise; `deaf` cannot confirm. */
function limited({ options: { peer, ...rest }, enterprise }: Awaited<ReturnType<typeof pulling>>) {
  const options = { ...rest, peer, limits: enterprise.receiveLimits };
  return { options, deaf: { ...options, peer: { ...peer, confirmReceipt: () => Promise.reject(cut()) } } };
}

describe('a lost answer, by pull', () => {
  test('BND-8: quarantine and receipts are on both sides', async () => {
    const zones = await pulling();
    const { plant, append } = zones;
    const { options, deaf } = limited(zones);
    const pull = () => pullOnce(options, 0, signal);
    await appendPoison(zones);
    await expect(pullOnce(deaf, 0, signal)).rejects.toThrow('cut');
    await expectOnlyThere(zones);
    await append('c');
    expect(await pull()).toBe(0);
    expect((await plant.store.consumers(out))[0]?.cursor).toBe(3);
    await expectOnBothSides(zones);
    expect(await pull()).toBe(1);
    await expectRedriven(zones, pull);
  });

  test('BND-8: a receiver without receipts, from before a restore, still gets on', async () => {
    const zones = await pulling();
    const { plant, enterprise, pull } = zones;
    const { deaf } = limited(zones);
    await appendPoison(zones);
    await expect(pullOnce(deaf, 0, signal)).rejects.toThrow('cut');
    await enterprise.database.query('delete from boundary.receipts');
    await pull();
    expect((await plant.store.consumers(out))[0]?.cursor).toBe(3);
  });
});

test('BND-10: zones reconcile brings receipts and quarantine that the sender lacks', async () => {
  const zones = await twoZones();
  const { plant, push } = zones;
  const { peer, isGenuine } = zones.options;
  await appendPoison(zones);
  await push();
  await plant.database.query('delete from boundary.receipts');
  await plant.database.query('delete from boundary.quarantine');
  await expectOnlyThere(zones);
  const reconcile = () => reconcileWithPeer({ store: plant.store, stream: out, peer, isGenuine, signal });
  expect(await reconcile()).toMatchObject({ copied: 1, copiedQuarantined: 1, isInAgreement: true });
  await expectOnBothSides(zones);
  expect(await reconcile()).toMatchObject({ copied: 0, copiedQuarantined: 0 });
  await expectRedriven(zones, push);
  // What became of it comes along.
  const [{ resolution } = {}] = await plant.store.quarantined(out, page);
  await plant.database.query('delete from boundary.quarantine');
  await reconcile();
  expect(await plant.store.quarantined(out, page)).toMatchObject([
    { offset: 2, resolution: { how: resolution?.how, by: resolution?.by } },
  ]);
});
