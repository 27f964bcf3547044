import { describe, expect, onTestFinished, test } from 'vitest';
import { confirmReceipt, fetchFacts } from '../../../src/apps/boundary/consume.ts';
import { peerConsumer } from '../../../src/apps/boundary/handoff/source.ts';
import { Admission } from '../../../src/apps/boundary/limits/admission.ts';
import { defaultLimits } from '../../../src/apps/boundary/limits/fill.ts';
import { trimConfirmed } from '../../../src/apps/boundary/retention.ts';
import type { FactStore, StreamId } from '../../../src/apps/boundary/store/store.ts';
import { testNode } from './rpc/node.ts';
import { fact } from './store/facts.ts';
import { boundaryDatabase, storeOn } from './support.ts';
import { into, out, pulling, twoZones } from './two-zones.ts';

const stream: StreamId = { tenantId: 'default', buffer: 'store', from: 'plant-a', to: 'enterprise' };

/** As a node does it. Returns false when it was refused for want of room. */
async function append(store: FactStore, admission: Admission, id: string): Promise<boolean> {
  const made = fact(id);
  try {
    await admission.admit(stream, JSON.stringify(made.record).length);
  } catch (error) {
    expect(error).toMatchObject({ code: 'RESOURCE_EXHAUSTED', reason: 'stream_full' });
    return false;
  }
  await store.append(stream, made);
  return true;
}

test('BND-9: appends are refused at 80 %, accepted again at 70 %, nothing is lost, and who pins the space is named', async () => {
  const { database } = await boundaryDatabase();
  const store = storeOn(database);
  await store.append(stream, fact('first'));
  const each = (await store.state(stream))?.bytes ?? 0;
  const limits = { ...defaultLimits, maxBytes: 100 * each };
  let now = 0;
  const admissionOn = () =>
    new Admission({ store, limits, freeBytes: async () => undefined, refreshMs: 1000, clock: () => now });
  const admission = admissionOn();
  const taken: string[] = [];
  for (let n = 1; n <= 120; n++) if (await append(store, admission, `m${n}`)) taken.push(`m${n}`);
  const { last = 0, bytes = 0 } = (await store.state(stream)) ?? {};
  expect(last).toBe(taken.length + 1);
  expect(bytes / limits.maxBytes).toBeGreaterThanOrEqual(0.8);
  expect(bytes / limits.maxBytes).toBeLessThan(0.82);
  // Another process of the node, or the next one, knows.
  expect(await append(store, admissionOn(), 'other')).toBe(false);

  const { entries } = await fetchFacts(store, stream, { consumer: 'erp', limit: 50 });
  // The other zone has everything.
  const peer = { consumer: peerConsumer('enterprise') };
  const sent = await fetchFacts(store, stream, { ...peer, limit: 1000 });
  await confirmReceipt(store, stream, { ...peer, offset: sent.entries.at(-1)?.offset ?? 0 });
  await expect(admission.admit(stream, 1)).rejects.toThrow('Consumer "erp" pins');
  const confirmAndTrim = async (offset: number): Promise<void> => {
    await confirmReceipt(store, stream, { consumer: 'erp', offset });
    await trimConfirmed(store, stream, new Date(Date.now() + 3_600_000));
    now += 1000;
  };
  expect(entries).toHaveLength(50);
  await confirmAndTrim(5);
  expect(await append(store, admission, 'at 75 %')).toBe(false);
  await confirmAndTrim(20);
  expect(await append(store, admission, 'at 60 %')).toBe(true);
  expect(await append(store, admissionOn(), 'other')).toBe(true);
  // Nothing that was not confirmed is gone.
  const { entries: rest } = await fetchFacts(store, stream, { consumer: 'erp', limit: 1000 });
  expect(rest.map(({ key }) => key)).toEqual([...taken.slice(19), 'at 60 %', 'other']);
});

describe('a stream that is short of room', () => {
  test.each(['refuse', 'drop-oldest'] as const)(
    'BND-9: with %s, what everyone has confirmed is trimmed, however young, before anything is refused or dropped',
    async (onFull) => {
      const { database } = await boundaryDatabase();
      const store = storeOn(database);
      await store.append(stream, fact('m0'));
      const each = (await store.state(stream))?.bytes ?? 0;
      const limits = { ...defaultLimits, maxBytes: 100 * each };
      let now = 0;
      const trimmed: number[] = [];
      const dropped: number[] = [];
      const admission = new Admission({
        ...{ store, limits, freeBytes: async () => undefined, clock: () => now },
        onFull: () => onFull,
        onTrimmed: (_, count) => trimmed.push(count),
        onDropped: (_, count) => dropped.push(count),
      });
      onTestFinished(() => admission.stop());
      const peer = { consumer: peerConsumer('enterprise') };
      const refused: string[] = [];
      for (let n = 1; n <= 200; n++) {
        if (!(await append(store, admission, `m${n}`))) refused.push(`m${n}`);
        now += 1000;
        if (n % 10 > 0) continue;
        const { entries } = await fetchFacts(store, stream, { ...peer, limit: 1000 });
        await confirmReceipt(store, stream, { ...peer, offset: entries.at(-1)?.offset ?? 0 });
      }
      expect(refused).toEqual([]);
      await admission.review(stream);
      const { first = 0, last, bytes = 0, fullSince } = (await store.state(stream)) ?? {};
      expect({ last, fullSince }).toEqual({ last: 201, fullSince: undefined });
      expect(bytes / limits.maxBytes).toBeLessThan(0.8);
      // No more than it takes: the rest is kept for as long as is configured.
      expect(201 - first).toBeGreaterThan(60);
      expect(trimmed.reduce((sum, count) => sum + count, 0)).toBe(first - 1);
      expect([dropped, await store.dropped(stream, { after: 0, limit: 1 })]).toEqual([[], []]);
    },
  );

  test('BND-3: the retry of a fact that was trimmed gets its first offset also while the stream is full', async () => {
    let free: number | undefined;
    const { node, store } = await testNode('plant-a', {
      admission: { freeBytes: async () => free, refreshMs: 0 },
    });
    const send = (messageId: string, object = 1) =>
      node.intake.append(
        { tenantId: 'default', authorize: () => {} },
        {
          ...{ messageId, fromZone: 'plant-a', toZone: 'enterprise', producedAt: 1 },
          ...{ subject: 'order:1', predicate: 'is', objectJson: `${object}` },
        },
      );
    for (const id of ['a', 'b']) await send(id);
    await store.trim(stream, 1);
    free = 0;
    await expect(send('c')).rejects.toMatchObject({ reason: 'stream_full' });
    expect(await send('a')).toEqual({ offset: 1, existing: true });
    await expect(send('a', 2)).rejects.toMatchObject({ reason: 'stream_full' });
  });
});

describe('what comes in from another zone', () => {
  test.each(['push', 'pull'] as const)(
    'BND-9: by %s, a full stream takes no more facts, names the consumer that pins it, and goes on by itself',
    async (by) => {
      const limits = { ...defaultLimits, maxBytes: 20_000 };
      const nodes = { enterprise: { admission: { limits, refreshMs: 0 } } };
      const zones = by === 'push' ? await twoZones(nodes) : await pulling(nodes);
      const { plant, enterprise, all, append: send } = zones;
      const step = () => ('pull' in zones ? zones.pull() : zones.push());
      const untilRefused = async (): Promise<unknown> => {
        for (;;) {
          const taken = await step().catch((error: unknown) => error);
          if (typeof taken !== 'number') return taken;
          if (taken === 0) return undefined;
        }
      };
      await Promise.all(Array.from({ length: 200 }, (_, i) => send(`m${i}`)));
      const sent = await all(plant, out);
      expect(await untilRefused()).toMatchObject({
        message: expect.stringContaining('No consumer has confirmed anything'),
      });
      const erp = { consumer: 'erp', limit: 1000 };
      await fetchFacts(enterprise.store, into, erp);
      expect(await untilRefused()).toMatchObject({
        message: expect.stringContaining('Consumer "erp" pins'),
      });
      const { bytes, last = 0 } = (await enterprise.store.state(into)) ?? {};
      expect(bytes).toBeLessThan(limits.maxBytes);
      expect(last).toBeLessThan(200);
      // What has not crossed waits at the source, and nothing of it is in quarantine.
      expect(await enterprise.store.frontier(into)).toMatchObject({ offset: last });
      expect(await plant.store.consumers(out)).toMatchObject([{ cursor: last }]);
      expect(await enterprise.store.quarantined(into, { after: 0, limit: 1 })).toEqual([]);
      const seen: string[] = [];
      while (seen.length < 200) {
        const { entries } = await fetchFacts(enterprise.store, into, erp);
        seen.push(...entries.map(({ key }) => key));
        await confirmReceipt(enterprise.store, into, {
          consumer: 'erp',
          offset: entries.at(-1)?.offset ?? 0,
        });
        await untilRefused();
      }
      expect(seen).toEqual(sent.map(({ key }) => key));
    },
  );
});

test('BND-9: a disk that has no room stops appends, whatever the stream may hold', async () => {
  const { database } = await boundaryDatabase();
  const store = storeOn(database);
  let now = 0;
  let free = 10 * 1024 ** 3;
  const admission = new Admission({
    store,
    limits: defaultLimits,
    freeBytes: async () => free,
    clock: () => now,
  });
  expect(await append(store, admission, 'a')).toBe(true);
  free = defaultLimits.reserveBytes;
  now += 1000;
  expect(await append(store, admission, 'b')).toBe(false);
  expect((await store.state(stream))?.fullSince).toBeInstanceOf(Date);
  free = 2 * defaultLimits.reserveBytes;
  now += 1000;
  expect(await append(store, admission, 'b')).toBe(true);
  expect((await store.state(stream))?.fullSince).toBeUndefined();
});
