import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { Delivery } from '../../../../src/apps/boundary/domain/delivery.ts';
import { codeOf, fact, sign } from './facts.ts';
import { type Opened, sceneOn } from './scene.ts';

/** More of what every adapter of the storage must do (BND-15): quarantine that is resolved, facts that are dropped, exports. */
export function describeCrossings(name: string, opened: () => Opened): void {
  const { streams, fill, all, messageIds, deliveryOf } = sceneOn(opened);

  describe(`${name}: crossings`, () => {
    test('BND-8: a later fact resolves what is in quarantine, and attempts in between; the first note stays', async () => {
      const { out, into, tenantId } = streams();
      await fill(out, 1);
      const epoch = (await opened().store.state(out))?.epoch ?? '';
      const standsFor = { epoch, offset: 1, messageId: 'm1' };
      await opened().store.append(out, fact('again', { standsFor }));
      await opened().store.append(out, fact('at last', { standsFor }));
      const delivery = await deliveryOf(out, 0);
      const refusal = { reason: 'too_large', message: 'too large' };
      const entries = delivery.entries.map((each) => (each.offset < 3 ? { ...each, refusal } : each));
      const open = { after: 0, limit: 10, isOpen: true };
      const isOpen = () => opened().store.isInQuarantine(tenantId, 'forward', 'plant-a', 'm1');
      await opened().store.deliver(into, { ...delivery, entries: entries.slice(0, 2) }, sign);
      expect(await opened().store.quarantined(into, open)).toHaveLength(2);
      expect(await isOpen()).toBe(true);
      await opened().store.deliver(into, { ...delivery, entries }, sign);
      expect(await opened().store.quarantined(into, open)).toEqual([]);
      expect(await isOpen()).toBe(false);
      for (const by of [3, 4])
        await opened().store.resolveQuarantined(into, { epoch, offset: 1 }, { how: 'dropped', by });
      const resolution = { how: 'redriven', by: 3, at: expect.any(Date) };
      expect(await opened().store.quarantined(into, { after: 0, limit: 10 })).toMatchObject([
        { offset: 1, resolution },
        { offset: 2, resolution },
      ]);
    });

    test('BND-9: what a source has dropped becomes gap records, without a gap in the offsets', async () => {
      const { out, into } = streams();
      await fill(out, 20);
      await opened().store.deliver(into, await deliveryOf(out, 0, 4), sign);
      const sent = await all(out);
      const epoch = (await opened().store.state(out))?.epoch ?? '';
      const range = (from: number, to: number) => ({ from, to, chain: sent[to - 1]?.chain ?? '' });
      expect(await opened().store.drop(out, { ...range(1, 4), epoch }, { ...range(5, 9), epoch })).toBe(9);
      await opened().other.drop(out, { ...range(5, 12), epoch });
      const kept = await opened().store.dropped(out, { after: 8, limit: 10 });
      expect(kept.map(({ from, to, epoch: of }) => [from, to, of])).toEqual([
        [5, 9, epoch],
        [5, 12, epoch],
      ]);
      expect((await opened().store.state(out))?.first).toBe(13);
      const next = await deliveryOf(out, 12);
      const chainBefore = range(1, 12).chain;
      const bring = (dropped: Delivery['dropped']) =>
        codeOf(
          opened()
            .store.deliver(into, { ...next, chainBefore, ...(dropped && { dropped }) }, sign)
            .then(() => 'taken'),
        );
      expect(await bring(undefined)).toBe('FAILED_PRECONDITION offset_gap');
      expect(await bring([range(6, 12)])).toBe('FAILED_PRECONDITION offset_gap');
      expect(await bring([{ ...range(5, 12), chain: 'ab'.repeat(32) }])).toBe(
        'FAILED_PRECONDITION chain_mismatch',
      );
      expect(await bring([{ ...range(5, 12), to: 2000 }])).toBe('FAILED_PRECONDITION too_many_dropped');
      expect(await bring([range(1, 9), range(5, 12)])).toBe('taken');
      expect(await bring([range(1, 9), range(5, 12)])).toBe('taken');
      expect(messageIds(await all(into))).toEqual(
        sent.map(({ key, offset }) => (offset > 4 && offset < 13 ? 'gap dropped_by_source' : key)),
      );
      expect(await opened().store.receipts(into, { after: 4, limit: 10 })).toMatchObject([
        { fromOffset: 5, toOffset: 20 },
      ]);
    });

    test('BND-11: what left in one-way mode is noted once, with the last time', async () => {
      const { out } = streams();
      const epoch = randomUUID();
      const range = { epoch, from: 1, to: 5, chain: 'ab'.repeat(32) };
      await opened().store.noteExported(out, range);
      const [first] = await opened().store.exported(out, { after: 0, limit: 10 });
      await opened().other.noteExported(out, range);
      const [again, ...more] = await opened().store.exported(out, { after: 4, limit: 10 });
      expect(again).toMatchObject(range);
      expect(again?.exportedAt.getTime()).toBeGreaterThanOrEqual(first?.exportedAt.getTime() ?? 0);
      expect([more, await opened().store.exported(out, { after: 5, limit: 10 })]).toEqual([[], []]);
    });
  });
}
