import pg from 'pg';
import { describe, expect, onTestFinished, test } from 'vitest';
import { isGap } from '../../../src/apps/boundary/domain/record.ts';
import { dropOldest } from '../../../src/apps/boundary/limits/drop.ts';
import { defaultLimits } from '../../../src/apps/boundary/limits/fill.ts';
import { reconcileWithPeer } from '../../../src/apps/boundary/reconcile/reconcile.ts';
import { fact } from './store/facts.ts';
import { into, out, pulling, twoZones } from './two-zones.ts';

/** A plant whose stream holds little, and drops its oldest facts. The clock stands still until the test moves it. */
function small() {
  const dropped: number[] = [];
  let now = 0;
  return {
    dropped,
    tick: () => {
      now += 1000;
    },
    nodes: {
      plant: {
        admission: {
          limits: { ...defaultLimits, maxBytes: 20_000 },
          onFull: () => 'drop-oldest' as const,
          onDropped: (_: unknown, count: number) => dropped.push(count),
          clock: () => now,
        },
      },
    },
  };
}

describe('a full stream that drops its oldest facts', () => {
  test.each(['push', 'pull'] as const)(
    'BND-9: by %s, each dropped fact is a gap record in the other zone, and counted',
    async (by) => {
      const { nodes, dropped, tick } = small();
      const zones = by === 'push' ? await twoZones(nodes) : await pulling(nodes);
      const { plant, enterprise, append, all } = zones;
      const step = () => ('pull' in zones ? zones.pull() : zones.push());
      for (let n = 1; n <= 5; n++) await append(`m${n}`, n);
      expect(await step()).toBe(5);
      // The line is cut for long. The oldest facts make room for new ones; none is refused.
      for (let n = 6; n <= 400; n++) {
        await append(`m${n}`, n);
        tick();
      }
      await plant.admission.review(out);
      const { first = 0, last, bytes } = (await plant.store.state(out)) ?? {};
      expect(last).toBe(400);
      expect(first).toBeGreaterThan(100);
      expect(bytes).toBeLessThan(17_000);
      // The first five had crossed: they are trimmed, not dropped.
      expect(dropped.reduce((sum, each) => sum + each)).toBe(first - 1 - 5);
      expect(await plant.store.state(out)).toMatchObject({ fullSince: undefined });
      for (let reached = 0; reached < 400; ) {
        expect(await step()).toBeGreaterThan(0);
        reached = (await enterprise.store.frontier(into))?.offset ?? 0;
      }
      const received = await all(enterprise, into);
      expect(received.map(({ offset }) => offset)).toEqual(Array.from({ length: 400 }, (_, i) => i + 1));
      expect(
        received.map(
          ({ offset, record }) =>
            (isGap(record) ? record.gap.reason : record.messageId) === said(offset, first),
        ),
      ).not.toContain(false);
      // What crossed in this way is covered by receipts that both sides have.
      const receipts = await enterprise.store.receipts(into, { after: 0, limit: 100 });
      let covered = 0;
      for (const { fromOffset, toOffset } of receipts) {
        expect(fromOffset).toBe(covered + 1);
        covered = toOffset;
      }
      expect(covered).toBe(400);
      expect(await plant.store.receipts(out, { after: 0, limit: 100 })).toEqual(receipts);
      if (by === 'pull') return;
      const { peer, isGenuine } = (zones as Awaited<ReturnType<typeof twoZones>>).options;
      const signal = new AbortController().signal;
      expect(
        await reconcileWithPeer({ store: plant.store, stream: out, peer, isGenuine, signal }),
      ).toMatchObject({
        problems: [],
        tampered: [],
        isInAgreement: true,
        gaps: first - 1 - 5,
      });
    },
  );

  test('BND-9: while the oldest facts are dropped producers go on, up to what the stream may hold', async () => {
    const { nodes, dropped, tick } = small();
    const { plant, append } = await twoZones(nodes);
    const fillOfPlant = async () => ((await plant.store.state(out))?.bytes ?? 0) / 20_000;
    const locked = new pg.Client({ connectionString: plant.url });
    await locked.connect();
    onTestFinished(() => locked.end());
    await locked.query('begin; lock table boundary.drops in exclusive mode');
    let n = 0;
    for (; (await fillOfPlant()) < 0.98; tick()) await append(`m${++n}`);
    expect(dropped).toEqual([]);
    // Beyond that they wait, and nothing is refused.
    const waiting = Array.from({ length: 10 }, async () => {
      await append(`m${++n}`);
      tick();
    });
    await locked.query('commit');
    await Promise.all(waiting);
    await plant.admission.review(out);
    const { first = 0, last } = (await plant.store.state(out)) ?? {};
    expect(last).toBe(n);
    expect(dropped.reduce((sum, each) => sum + each, 0)).toBe(first - 1);
    expect(await fillOfPlant()).toBeLessThan(0.8);
  });

  test('BND-9: many facts are dropped in one step, in notes that a delivery can take', async () => {
    const { plant } = await twoZones();
    const many = Array.from({ length: 1200 }, (_, i) => fact(`m${i}`));
    await plant.store.appendInOrder(out, many);
    expect(await dropOldest(plant.store, out, 0)).toEqual({ dropped: 1199, isMore: true });
    expect(await plant.store.dropped(out, { after: 0, limit: 10 })).toMatchObject([
      { from: 1, to: 500 },
      { from: 501, to: 1000 },
      { from: 1001, to: 1199 },
    ]);
    // The newest one stays.
    expect(await dropOldest(plant.store, out, 0)).toEqual({ dropped: 0, isMore: false });
  });

  test('BND-9: a process that dies between the note and the drop loses nothing: the facts cross as usual', async () => {
    const { plant, enterprise, append, push, all } = await twoZones();
    for (let n = 1; n <= 10; n++) await append(`m${n}`, n);
    const sent = await all(plant, out);
    const { epoch = '' } = (await plant.store.state(out)) ?? {};
    await plant.store.drop(out, { from: 1, to: 3, chain: sent[2]?.chain ?? '', epoch });
    await plant.database.query(
      `insert into boundary.drops (tenant_id, buffer, from_zone, to_zone, epoch, from_offset, to_offset, chain)
       values ('default', 'store', 'plant-a', 'enterprise', $1, 4, 6, $2)`,
      [epoch, sent[5]?.chain],
    );
    expect([await push(), await push()]).toEqual([3, 7]);
    expect((await all(enterprise, into)).map(({ record }) => isGap(record))).toEqual(
      sent.map(({ offset }) => offset <= 3),
    );
  });

  test('BND-9: a disk without room refuses, and nothing is dropped for it', async () => {
    const { nodes, dropped, tick } = small();
    let free: number | undefined;
    const admission = { ...nodes.plant.admission, freeBytes: async () => free };
    const { plant, append } = await twoZones({ plant: { admission } });
    for (let n = 1; n <= 10; n++) await append(`m${n}`, n);
    free = defaultLimits.reserveBytes;
    for (let i = 0; i < 3; i++) {
      tick();
      await expect(append('one more')).rejects.toMatchObject({ reason: 'stream_full' });
    }
    expect(dropped).toEqual([]);
    expect(await plant.store.state(out)).toMatchObject({ first: 1, last: 10 });
    free = undefined;
    tick();
    expect(await append('one more')).toMatchObject({ offset: 11 });
  });
});

/** The first five had crossed before. */
const said = (offset: number, first: number): string =>
  offset <= 5 || offset >= first ? `m${offset}` : 'dropped_by_source';
