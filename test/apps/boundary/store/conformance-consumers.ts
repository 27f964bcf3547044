import { describe, expect, test } from 'vitest';
import { confirmReceipt, fetchFacts } from '../../../../src/apps/boundary/consume.ts';
import { peerConsumer } from '../../../../src/apps/boundary/handoff/source.ts';
import { trimConfirmed } from '../../../../src/apps/boundary/retention.ts';
import type { ConsumerState, FactStore, StreamId } from '../../../../src/apps/boundary/store/store.ts';
import { until } from '../../../support/until.ts';
import { codeOf, numbers } from './facts.ts';
import { type Opened, sceneOn } from './scene.ts';

export function describeConsumers(name: string, opened: () => Opened): void {
  const { streams, fill } = sceneOn(opened);

  describe(`${name}: consumers`, () => {
    const fetch = (stream: StreamId, instance: string, more: object = {}, on = opened().store) =>
      fetchFacts(on, stream, { consumer: 'erp', instance, limit: 10, ...more });
    const confirm = (stream: StreamId, instance: string, offset: number, on = opened().store) =>
      confirmReceipt(on, stream, { consumer: 'erp', instance, offset });

    test('BND-7: the node keeps the cursor; it never goes backwards, nor beyond what was fetched', async () => {
      const { out } = streams();
      await fill(out, 25);
      const first = await fetch(out, 'i1');
      expect(first.entries.map(({ offset }) => offset)).toEqual(numbers(1, 10));
      expect(first).toMatchObject({
        cursor: 0,
        backlog: 25,
        epoch: (await opened().store.state(out))?.epoch,
      });
      // Not confirmed: the same ones again.
      expect((await fetch(out, 'i1')).entries[0]?.offset).toBe(1);
      expect(await codeOf(confirm(out, 'i1', 11))).toBe('OUT_OF_RANGE not_fetched');
      expect(await confirm(out, 'i1', 7)).toBe(7);
      expect(await confirm(out, 'i1', 3)).toBe(7);
      expect(await fetch(out, 'i1', { limit: 2 })).toMatchObject({ cursor: 7, backlog: 18 });
      expect(await codeOf(confirmReceipt(opened().store, out, { consumer: 'none', offset: 1 }))).toBe(
        'NOT_FOUND unknown_consumer',
      );
    });

    test('BND-7: of two instances only one has the consumer; the other takes over when it is silent', async () => {
      const { out } = streams();
      await fill(out, 5);
      await fetch(out, 'i1');
      expect(await codeOf(fetch(out, 'i2', {}, opened().other))).toBe('FAILED_PRECONDITION consumer_in_use');
      expect(await confirm(out, 'i1', 2)).toBe(2);
      // i1 was silent for as long as its lease.
      const lapsed = await opened().store.openConsumer(out, 'other', {
        instance: 'i1',
        leaseMs: 0,
        start: { after: 0 },
      });
      expect(lapsed.generation).toBe(1);
      let taken: ConsumerState | undefined;
      await until('the lease has run out', async () => {
        taken = await opened()
          .other.openConsumer(out, 'other', { instance: 'i2', leaseMs: 60_000, start: { after: 0 } })
          .catch(() => undefined);
        return taken !== undefined;
      });
      expect(taken).toMatchObject({ instance: 'i2', generation: 2, cursor: 0, fetched: 0 });
      expect(await opened().store.noteFetched(out, lapsed, 5)).toBe(false);
      expect(await codeOf(opened().store.confirm(out, 'other', 'i1', 0))).toBe('ABORTED consumer_taken_over');
    });

    test('BND-7: consumers begin anywhere, and can be sought, listed and deleted', async () => {
      const { out } = streams();
      await fill(out, 8);
      const begin = async (consumer: string, start: Parameters<FactStore['seek']>[2]) =>
        (await fetchFacts(opened().store, out, { consumer, start })).cursor;
      expect(await begin('beginning', { after: 0 })).toBe(0);
      expect(await begin('middle', { after: 3 })).toBe(3);
      expect(await begin('end', 'end')).toBe(8);
      expect(await begin('time', { at: new Date(0) })).toBe(0);
      expect(await begin('future', { at: new Date('2999-01-01') })).toBe(8);
      expect(await codeOf(begin('beyond', { after: 9 }))).toBe('OUT_OF_RANGE offset_not_issued');
      expect((await opened().store.consumers(out)).map((each) => [each.name, each.cursor])).toEqual([
        ['beginning', 0],
        ['end', 8],
        ['future', 8],
        ['middle', 3],
        ['time', 0],
      ]);
      expect(await opened().store.deleteConsumer(out, 'time')).toBe(true);
      expect(await opened().store.deleteConsumer(out, 'time')).toBe(false);
      expect(await codeOf(opened().store.seek(out, 'time', 'end'))).toBe('NOT_FOUND unknown_consumer');

      await fetch(out, 'i1');
      await confirm(out, 'i1', 6);
      expect(await opened().store.seek(out, 'erp', { after: 2 })).toMatchObject({ cursor: 2 });
      // What was fetched before the seek is not confirmed by accident.
      expect(await codeOf(confirm(out, 'i1', 8))).toBe('OUT_OF_RANGE not_fetched');
      expect((await fetch(out, 'i1')).entries[0]?.offset).toBe(3);
    });

    test('BND-9: only what every consumer has confirmed is trimmed, and only when it is old enough', async () => {
      const { out } = streams();
      await fill(out, 6);
      const later = new Date(Date.now() + 3_600_000);
      expect(await trimConfirmed(opened().store, out, later)).toBe(0);
      await fetch(out, 'i1');
      await fetchFacts(opened().store, out, { consumer: 'slow' });
      await confirm(out, 'i1', 6);
      expect(await trimConfirmed(opened().store, out, later)).toBe(0);
      await confirmReceipt(opened().store, out, { consumer: 'slow', offset: 4 });
      // The zone that they go to connects by itself, and has not done so yet.
      expect(await trimConfirmed(opened().store, out, later)).toBe(0);
      const peer = { consumer: peerConsumer('enterprise') };
      await fetchFacts(opened().store, out, { ...peer, limit: 10 });
      expect(await trimConfirmed(opened().store, out, later)).toBe(0);
      await confirmReceipt(opened().store, out, { ...peer, offset: 5 });
      expect(await trimConfirmed(opened().store, out, new Date(0))).toBe(0);
      expect(await trimConfirmed(opened().store, out, later)).toBe(4);
      expect(await opened().store.state(out)).toMatchObject({ first: 5, last: 6 });
      const { cursor, entries } = await fetchFacts(opened().store, out, { consumer: 'new' });
      expect([cursor, entries[0]?.offset]).toEqual([4, 5]);
    });
  });
}
