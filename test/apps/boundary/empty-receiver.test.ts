/** A zone that begins with an empty database, and a source that cannot give it everything from the start. */
import { expect, test } from 'vitest';
import { planAcceptEpoch } from '../../../src/apps/boundary/epochs/accept-epoch.ts';
import { startNewEpoch } from '../../../src/apps/boundary/epochs/new-epoch.ts';
import { peerConsumer } from '../../../src/apps/boundary/handoff/source.ts';
import { trimConfirmed } from '../../../src/apps/boundary/retention.ts';
import { numbers } from './store/facts.ts';
import { into, out, pulling, twoZones } from './two-zones.ts';

/** Ten facts, all of them confirmed by a database that is gone. */
async function scene(by: 'push' | 'pull') {
  const zones = by === 'push' ? await twoZones() : await pulling();
  const { plant, enterprise, append, all } = zones;
  const { store, objects, database } = plant;
  for (const n of numbers(1, 10)) await append(`m${n}`);
  const consumer = peerConsumer('enterprise');
  await store.openConsumer(out, consumer, { instance: 'i1', leaseMs: 0, start: 'end' });
  const carry = (): Promise<number> => ('pull' in zones ? zones.pull() : zones.push());
  const carryAll = async (): Promise<void> => {
    while ((await carry()) > 0);
  };
  const newEpoch = () => startNewEpoch({ database, store, objects, stream: out, reached: { offset: 0 } });
  const received = async () =>
    (await all(enterprise, into)).map(({ record }) =>
      'gap' in record ? record.gap.reason : (record.standsFor?.messageId ?? record.messageId),
    );
  return { ...zones, carry, carryAll, newEpoch, received };
}

for (const by of ['push', 'pull'] as const) {
  test(`BND-4: an empty receiver of a trimmed stream goes on after new-epoch alone, by ${by}; accepting it is not refused`, async () => {
    const { plant, enterprise, append, carry, carryAll, newEpoch, received } = await scene(by);
    expect(await trimConfirmed(plant.store, out, new Date(Date.now() + 3_600_000))).toBe(10);
    for (const n of numbers(11, 13)) await append(`m${n}`);
    await expect(carry()).rejects.toThrow('zones new-epoch enterprise --after 0');
    const token = await newEpoch();
    expect(await planAcceptEpoch(enterprise.store, into, token)).toMatchObject({ state: 'first', offset: 0 });
    await expect(planAcceptEpoch(enterprise.store, into, { ...token, after: 5 })).rejects.toThrow(
      'zones new-epoch enterprise --after 0',
    );
    await carryAll();
    expect(await received()).toEqual([...Array(13).fill('dropped_by_source'), 'm11', 'm12', 'm13']);
    expect(await planAcceptEpoch(enterprise.store, into, token)).toMatchObject({ state: 'accepted' });
  });
}

test('BND-4: with nothing left to append again there is no trouble before the next fact', async () => {
  const { plant, append, carryAll, newEpoch, received } = await scene('pull');
  await trimConfirmed(plant.store, out, new Date(Date.now() + 3_600_000));
  await newEpoch();
  await carryAll();
  await append('next');
  await carryAll();
  expect((await received()).at(-1)).toBe('next');
});

test('BND-4: an empty receiver of a stream with two epochs is told to start another one', async () => {
  const { plant, append, carry, carryAll, newEpoch, received } = await scene('push');
  await plant.store.newEpoch(out, 11);
  await append('m11');
  await expect(carryAll()).rejects.toThrow('zones new-epoch enterprise --after 0');
  await newEpoch();
  await carryAll();
  expect((await received()).slice(11)).toEqual(numbers(1, 11).map((n) => `m${n}`));
  expect(await carry()).toBe(0);
});
