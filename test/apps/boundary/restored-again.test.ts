/** Facts that crossed under other ids than their first one, and are appended again after a restore: nothing arrives twice. */
import { expect, test } from 'vitest';
import type { Zone } from '../../../src/apps/boundary/domain/zones.ts';
import { startNewEpoch } from '../../../src/apps/boundary/epochs/new-epoch.ts';
import { peerConsumer } from '../../../src/apps/boundary/handoff/source.ts';
import { redrive } from '../../../src/apps/boundary/redrive.ts';
import { firstChain } from '../../../src/engine/log/entry.ts';
import { testNode } from './rpc/node.ts';
import { fact, sign } from './store/facts.ts';
import { into, out, twoZones } from './two-zones.ts';

const large = 'x'.repeat(5000);

async function scene() {
  const zones = await twoZones();
  const { plant, enterprise, all, push } = zones;
  const { store, objects, admission } = plant;
  const pushAll = async (): Promise<void> => {
    while ((await push()) > 0);
  };
  /** The plant comes from a backup that was made before it noted that anything behind an offset was confirmed. */
  const restore = async (cursor: number): Promise<void> => {
    await store.seek(out, peerConsumer('enterprise'), { after: cursor });
    const reached = await enterprise.store.frontier(into);
    if (!reached) throw new Error('nothing has crossed yet');
    const { database } = plant;
    const { epoch, chain } = await startNewEpoch({ database, store, objects, stream: out, reached });
    await enterprise.store.acceptEpoch(into, epoch, chain);
    await pushAll();
  };
  const redriveAt = (offset: number) => redrive({ store, objects, admission, stream: out }, { offset });
  /** Contents, and reasons of gap records. */
  const received = async (after = 0) =>
    (await all(enterprise, into))
      .filter(({ offset }) => offset > after)
      .map(({ record }) =>
        'gap' in record ? `gap ${record.gap.reason}` : JSON.parse(record.object).slice(0, 9),
      );
  const open = () => enterprise.store.quarantined(into, { after: 0, limit: 10, isOpen: true });
  return { ...zones, pushAll, restore, redriveAt, received, open };
}

/** "a", a fact that is too large there at first, and its redrive. */
async function redriven() {
  const made = await scene();
  const { enterprise, append, pushAll, redriveAt, received, open } = made;
  enterprise.receiveLimits.maxRecordBytes = 2000;
  await append('a', 'a');
  await append('poison', large);
  await pushAll();
  enterprise.receiveLimits.maxRecordBytes = 1024 * 1024;
  await redriveAt(2);
  await pushAll();
  expect(await received()).toEqual(['a', 'gap too_large', large.slice(0, 9)]);
  expect(await open()).toEqual([]);
  return made;
}

test('BND-4, BND-8: a redrive that had crossed is not delivered again after a restore', async () => {
  const { restore, received, open } = await redriven();
  await restore(2);
  expect(await received(3)).toEqual(['gap already_delivered']);
  // Once more, and now the fact in quarantine is appended again, too: its content is there by the redrive.
  await restore(0);
  expect(new Set(await received(4))).toEqual(new Set(['gap already_delivered']));
  expect(await open()).toEqual([]);
});

test('BND-4: what had crossed after one restore is not delivered again after the next one', async () => {
  const { append, restore, received, pushAll, plant } = await scene();
  await append('a', 'a');
  await pushAll();
  // Appended, and not crossed before the restore: it crosses under another id.
  await append('b', 'b');
  await restore(1);
  expect(await received(1)).toContain('b');
  const { last = 0 } = (await plant.store.state(out)) ?? {};
  for (const cursor of [last - 1, 1]) {
    const before = (await received()).length;
    await restore(cursor);
    expect(new Set(await received(before))).toEqual(new Set(['gap already_delivered']));
  }
});

test('BND-4: the same backup restored twice, and a producer that sends again: one fact arrives', async () => {
  const { enterprise, append, restore, received, pushAll, open } = await scene();
  await append('a', 'a');
  await pushAll();
  await append('b', 'b');
  await restore(1);
  expect(await received(1)).toContain('b');
  const { length } = await received();
  // Another database stands for the same backup: it has "a", and a producer sends "b" again.
  const { node, store, objects, database } = await testNode('plant-a');
  const input = {
    fromZone: 'plant-a',
    toZone: 'enterprise',
    producedAt: 1,
    subject: 'order:1',
    predicate: 'is',
  };
  const caller = { tenantId: 'default', authorize: () => {} };
  const send = (id: string, object = id) =>
    node.intake.append(caller, { ...input, messageId: id, objectJson: JSON.stringify(object) });
  await send('a');
  const begin = async () => {
    const reached = await enterprise.store.frontier(into);
    if (!reached) throw new Error('nothing has crossed yet');
    const { epoch, chain } = await startNewEpoch({ database, store, objects, stream: out, reached });
    await enterprise.store.acceptEpoch(into, epoch, chain);
    return epoch;
  };
  const deliver = async (epoch: string): Promise<void> => {
    const { offset = 0, chain = '' } = (await enterprise.store.frontier(into)) ?? {};
    const entries = await store.read(out, { after: offset, limit: 100, maxBytes: 1_000_000 });
    await enterprise.store.deliver(into, { epoch, chainBefore: chain, entries }, sign);
  };
  const first = await begin();
  await send('b');
  await send('c');
  await deliver(first);
  const delivered = 'gap already_delivered';
  expect(await received(length)).toEqual([delivered, delivered, 'c']);
  // Everything is appended again: nothing was noted as confirmed there.
  await deliver(await begin());
  expect(new Set(await received(length + 3))).toEqual(new Set([delivered]));
  expect(await open()).toEqual([]);
});

test('BND-4, BND-8: a redrive after a conflict is not taken for the conflict once more', async () => {
  const { enterprise, append, pushAll, redriveAt, restore, received, open } = await scene();
  // The id came to the enterprise with other content, from a plant that was replaced.
  const former = await testNode('plant-a');
  const lab = { ...out, to: 'lab' };
  await former.store.append(lab, fact('poison', { to: 'lab' as Zone }));
  const { epoch = '' } = (await former.store.state(lab)) ?? {};
  const entries = await former.store.read(lab, { after: 0, limit: 1, maxBytes: 10_000 });
  await enterprise.store.deliver(
    { ...into, to: 'lab' },
    { epoch, chainBefore: firstChain(epoch), entries },
    sign,
  );
  await append('a', 'a');
  await append('poison', 'corrected');
  await pushAll();
  expect(await open()).toMatchObject([{ messageId: 'poison', reason: 'conflicting_duplicate' }]);
  await redriveAt(2);
  await pushAll();
  expect(await received()).toEqual(['a', 'gap conflicting_duplicate', 'corrected']);
  expect(await open()).toEqual([]);
  await restore(2);
  expect(await received(3)).toEqual(['gap already_delivered']);
  expect(await open()).toEqual([]);
});
