import { randomUUID } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import type { Delivery } from '../../../../src/apps/boundary/domain/delivery.ts';
import { isSignedBy } from '../../../../src/apps/boundary/domain/receipt.ts';
import type { Zone } from '../../../../src/apps/boundary/domain/zones.ts';
import type { StoredEntry } from '../../../../src/apps/boundary/store/store.ts';
import { nextChain } from '../../../../src/engine/log/entry.ts';
import { codeOf, fact, numbers, publicKey, sign } from './facts.ts';
import { type Opened, sceneOn } from './scene.ts';

export function describeDeliveries(name: string, opened: () => Opened): void {
  const { streams, fill, all, messageIds, deliveryOf } = sceneOn(opened);

  describe(`${name}: deliveries`, () => {
    test('BND-8: facts arrive in order at the same offsets, byte for byte, each once', async () => {
      const { out, into } = streams();
      await fill(out, 30);
      expect(await opened().store.frontier(into)).toBeUndefined();
      const first = await opened().store.deliver(into, await deliveryOf(out, 0, 12), sign);
      expect(first.frontier).toMatchObject({ offset: 12 });
      expect(first.receipt).toMatchObject({ fromOffset: 1, toOffset: 12, chain: first.frontier.chain });
      // The answer was lost: the sender delivers again, and more.
      const again = await opened().store.deliver(into, await deliveryOf(out, 5), sign);
      expect(again.receipt).toMatchObject({ fromOffset: 13, toOffset: 30 });
      const sent = await all(out);
      const received = await all(into);
      expect(received.map(({ offset, key, digest, text }) => [offset, key, digest, text])).toEqual(
        sent.map(({ offset, key, digest, text }) => [offset, key, digest, text]),
      );
      expect(await opened().store.frontier(into)).toEqual({
        epoch: (await opened().store.state(out))?.epoch,
        offset: 30,
        chain: sent.at(-1)?.chain,
      });
      const repeated = await opened().store.deliver(into, await deliveryOf(out, 20), sign);
      expect(repeated).toEqual({ ...again, quarantined: [] });
    });

    test('BND-8: two peers that deliver the same at once leave each fact once', async () => {
      const { out, into } = streams();
      for (const prefix of ['a', 'b', 'c', 'd']) {
        const { last = 0 } = (await opened().store.state(out)) ?? {};
        await fill(out, 20, prefix);
        const delivery = await deliveryOf(out, last);
        const answers = await Promise.all([
          opened().store.deliver(into, delivery, sign),
          opened().other.deliver(into, delivery, sign),
        ]);
        expect(answers[0]?.receipt).toMatchObject({ fromOffset: last + 1, toOffset: last + 20 });
        expect(answers[1]?.receipt).toEqual(answers[0]?.receipt);
      }
      expect(messageIds(await all(into))).toEqual(messageIds(await all(out)));
    });

    test('BND-10: receipts cover everything that was received, are signed, and kept', async () => {
      const { out, into } = streams();
      await fill(out, 10);
      for (const after of [0, 4, 8]) {
        const { receipt } = await opened().store.deliver(into, await deliveryOf(out, after, 4), sign);
        if (receipt) await opened().store.addReceipt('store', receipt);
      }
      const kept = await opened().store.receipts(into, { after: 0, limit: 10 });
      expect(kept.map(({ fromOffset, toOffset }) => [fromOffset, toOffset])).toEqual([
        [1, 4],
        [5, 8],
        [9, 10],
      ]);
      expect(kept.every((receipt) => isSignedBy(receipt, publicKey))).toBe(true);
      expect(await opened().store.receipts(out, { after: 4, limit: 1 })).toEqual([kept[1]]);
    });

    test('BND-4: a gap, a changed fact, another epoch or another stream is refused, and nothing is taken', async () => {
      const { out, into, of } = streams();
      await fill(out, 6);
      await opened().store.deliver(into, await deliveryOf(out, 0, 3), sign);
      const before = await opened().store.frontier(into);
      const next = await deliveryOf(out, 3);
      const refused = async (delivery: Delivery, to = into) =>
        codeOf(
          opened()
            .store.deliver(to, delivery, sign)
            .then(() => 'taken'),
        );
      const changed = (at: number, change: Partial<StoredEntry>): Delivery => ({
        ...next,
        entries: next.entries.map((each, i) => (i === at ? { ...each, ...change } : each)),
      });
      expect(await refused(await deliveryOf(out, 4))).toBe('FAILED_PRECONDITION offset_gap');
      expect(await refused({ ...next, entries: next.entries.filter((_, i) => i !== 1) })).toBe(
        'FAILED_PRECONDITION offset_gap',
      );
      expect(await refused(await deliveryOf(out, 0, 2))).toBe('FAILED_PRECONDITION behind_frontier');
      expect(await refused({ ...next, epoch: randomUUID() })).toBe('FAILED_PRECONDITION epoch_mismatch');
      expect(await refused({ ...next, chainBefore: 'ab'.repeat(32) })).toBe(
        'FAILED_PRECONDITION chain_mismatch',
      );
      const text = next.entries[1]?.text.replace('done', 'lost') ?? '';
      expect(await refused(changed(1, { text }))).toBe('FAILED_PRECONDITION chain_mismatch');
      expect(await refused(changed(1, { digest: 'ab'.repeat(32) }))).toBe(
        'FAILED_PRECONDITION chain_mismatch',
      );
      expect(await refused(await deliveryOf(out, 0), of('forward', 'lab'))).toBe(
        'FAILED_PRECONDITION wrong_stream',
      );
      expect(await opened().store.frontier(into)).toEqual(before);
      expect(await all(into)).toHaveLength(3);
      expect(await refused(next)).toBe('taken');
    });

    test('BND-4: a source that was restored from a backup is refused until its new epoch is accepted', async () => {
      const { out, into, of } = streams();
      await fill(out, 6);
      await opened().store.deliver(into, await deliveryOf(out, 0), sign);
      // Another stream stands for the restored one: the first four facts, then others at the same offsets.
      const restored = streams().out;
      await Promise.all(
        numbers(1, 8).map((n) => opened().store.append(restored, fact(`m${n > 4 ? n + 100 : n}`))),
      );
      const epoch = (await opened().store.state(out))?.epoch ?? '';
      const delivery = { ...(await deliveryOf(restored, 0)), epoch };
      expect(await codeOf(opened().store.deliver(into, delivery, sign))).toBe(
        'FAILED_PRECONDITION chain_mismatch',
      );
      // The way back: offsets go on behind what the peer has, in a new epoch.
      const next = await opened().store.newEpoch(out, 7);
      const { chain = '' } = (await opened().store.state(out)) ?? {};
      await opened().store.append(out, fact('after'));
      const sent = { ...(await deliveryOf(out, 6)), chainBefore: chain };
      expect(sent.entries.map(({ offset }) => offset)).toEqual([7]);
      expect(await codeOf(opened().store.deliver(into, sent, sign))).toBe(
        'FAILED_PRECONDITION epoch_mismatch',
      );
      expect(await opened().store.acceptEpoch(into, next, chain)).toEqual({ epoch: next, offset: 6, chain });
      expect((await opened().store.deliver(into, sent, sign)).frontier.offset).toBe(7);
      expect(of('store')).toEqual(out);
    });

    test('BND-8: what cannot be taken goes into quarantine, a gap record keeps its offset, the stream goes on', async () => {
      const { out, into, of, tenantId } = streams();
      // The id came here before, on another stream of the zone, as if the source had been restored.
      const elsewhere = of('store', 'lab');
      await opened().store.append(elsewhere, fact('m2', { to: 'lab' as Zone }));
      const source = streams().out;
      await fill(source, 5);
      await opened().store.deliver(of('forward', 'lab'), await deliveryOf(elsewhere, 0), sign);
      const delivery = await deliveryOf(source, 0);
      const entries = delivery.entries.map((each) =>
        each.key === 'm4' ? { ...each, refusal: { reason: 'too_large', message: 'too large' } } : each,
      );
      const { frontier, quarantined } = await opened().store.deliver(into, { ...delivery, entries }, sign);
      expect(frontier.offset).toBe(5);
      const expected = delivery.entries
        .filter(({ key }) => key === 'm2' || key === 'm4')
        .map(({ offset, key, text }) => ({
          offset,
          messageId: key,
          reason: key === 'm2' ? 'conflicting_duplicate' : 'too_large',
          text,
        }));
      expect(quarantined).toMatchObject(expected);
      expect(await opened().store.quarantined(into, { after: 0, limit: 10 })).toMatchObject(expected);
      const received = messageIds(await all(into));
      expect(received).toHaveLength(5);
      expect(received.filter((each) => each.startsWith('gap'))).toHaveLength(2);
      await opened().store.quarantine(
        tenantId,
        quarantined.map((each) => ({ ...each, buffer: 'store' as const })),
      );
      expect(await opened().store.quarantined(out, { after: 0, limit: 10 })).toMatchObject(expected);
      expect((await opened().store.append(out, fact('more'))).offset).toBe(1);
    });

    test('BND-8: the same delivery again has the same answer, receipt and quarantine, also where the first one broke off', async () => {
      for (const breaksOff of [false, true]) {
        const { out, into } = streams();
        await fill(out, 5);
        const delivery = await deliveryOf(out, 0);
        const refusal = { reason: 'too_large', message: 'too large' };
        const entries = delivery.entries.map((each) => (each.offset === 2 ? { ...each, refusal } : each));
        const broken = (): never => {
          throw new Error('the process has died');
        };
        const deliver = (signed = sign) => opened().store.deliver(into, { ...delivery, entries }, signed);
        // On JetStream the facts are in already, and the receipt is not.
        if (breaksOff) await expect(deliver(broken)).rejects.toThrow('has died');
        const first = await deliver();
        expect(first).toMatchObject({
          frontier: { offset: 5 },
          receipt: { fromOffset: 1, toOffset: 5 },
          quarantined: [{ offset: 2, messageId: entries[1]?.key, reason: 'too_large' }],
        });
        expect(await deliver()).toEqual(first);
        await fill(out, 3, 'n');
        const more = await opened().store.deliver(into, await deliveryOf(out, 1), sign);
        expect(more).toMatchObject({ receipt: { fromOffset: 6, toOffset: 8 }, quarantined: [] });
      }
    });

    test('BND-8: an id is taken far behind a redriven fact of the same delivery: that one is in, and resolves the first', async () => {
      const { into, of } = streams();
      const elsewhere = of('store', 'lab');
      await opened().store.append(elsewhere, fact('taken', { to: 'lab' as Zone }));
      const source = streams().out;
      await fill(source, 1);
      const epoch = (await opened().store.state(source))?.epoch ?? '';
      const standsFor = { epoch, offset: 1, messageId: 'm1' };
      const ids = [...numbers(2, 700).map((n) => `n${n}`), 'taken', 'last'];
      await opened().store.appendInOrder(source, [
        fact('again', { standsFor }),
        ...ids.map((id) => fact(id)),
      ]);
      await opened().store.deliver(of('forward', 'lab'), await deliveryOf(elsewhere, 0), sign);
      const first = await deliveryOf(source, 0, 1);
      const refusal = { reason: 'too_large', message: 'too large' };
      const entries = first.entries.map((each) => ({ ...each, refusal }));
      await opened().store.deliver(into, { ...first, entries }, sign);
      const { quarantined } = await opened().store.deliver(into, await deliveryOf(source, 1), sign);
      expect(quarantined).toMatchObject([{ messageId: 'taken' }]);
      expect(messageIds(await all(into))).toEqual([
        'gap too_large',
        'again',
        ...ids.map((id) => (id === 'taken' ? 'gap conflicting_duplicate' : id)),
      ]);
      expect(await opened().store.quarantined(into, { after: 0, limit: 10 })).toMatchObject([
        { messageId: 'm1', resolution: { how: 'redriven', by: 2 } },
        { messageId: 'taken' },
      ]);
    });

    test('BND-8: a fact that is taken after all leaves quarantine, where it was put before a delivery that failed', async () => {
      const { out, into, tenantId } = streams();
      await fill(out, 3);
      const { epoch, ...delivery } = await deliveryOf(out, 0);
      const { from, to } = into;
      const row = { buffer: 'forward' as const, from, to, epoch, quarantinedAt: new Date() };
      const why = { reason: 'too_large', message: 'too large' };
      await opened().store.quarantine(
        tenantId,
        delivery.entries.map(({ offset, key, text }) => ({ ...row, ...why, offset, messageId: key, text })),
      );
      const entries = delivery.entries.map((each) => (each.offset === 2 ? { ...each, refusal: why } : each));
      await opened().store.deliver(into, { ...delivery, epoch, entries }, sign);
      expect(await opened().store.quarantined(into, { after: 0, limit: 10 })).toMatchObject([{ offset: 2 }]);
      const [first, second] = delivery.entries.map(({ key }) => key);
      const isOpen = (id = '') => opened().store.isInQuarantine(tenantId, 'forward', 'plant-a', id);
      expect(await Promise.all([isOpen(first), isOpen(second)])).toEqual([false, true]);
    });

    test('BND-8: a fact that came before with the same content leaves a gap record, and is no poison', async () => {
      const { into } = streams();
      const first = streams().out;
      await fill(first, 3);
      await opened().store.deliver(into, await deliveryOf(first, 0), sign);
      await opened().store.trim(into, 2);
      // After a restore the producers have sent their facts again.
      const epoch = await opened().store.newEpoch(first, 4);
      const { chain = '' } = (await opened().store.state(first)) ?? {};
      await opened().store.acceptEpoch(into, epoch, chain);
      const again = streams().out;
      await fill(again, 3);
      const entries = (await all(again)).map((each, i) => ({ ...each, offset: 4 + i }));
      let before = chain;
      const chained = entries.map((each) => {
        before = nextChain(before, each);
        return { ...each, chain: before };
      });
      const { quarantined } = await opened().store.deliver(
        into,
        { epoch, chainBefore: chain, entries: chained },
        sign,
      );
      expect(quarantined).toEqual([]);
      expect(messageIds(await all(into, 3))).toEqual(Array(3).fill('gap already_delivered'));
    });
  });
}
