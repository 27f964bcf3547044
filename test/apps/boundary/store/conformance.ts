import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { confirmReceipt, fetchFacts } from '../../../../src/apps/boundary/consume.ts';
import type { Delivery } from '../../../../src/apps/boundary/domain/delivery.ts';
import { contentDigest } from '../../../../src/apps/boundary/domain/fact.ts';
import { isSignedBy, type Receipt, signReceipt } from '../../../../src/apps/boundary/domain/receipt.ts';
import type { FactRecord } from '../../../../src/apps/boundary/domain/record.ts';
import type { Zone } from '../../../../src/apps/boundary/domain/zones.ts';
import { trimConfirmed } from '../../../../src/apps/boundary/retention.ts';
import type {
  ConsumerState,
  FactStore,
  StoredEntry,
  StreamId,
} from '../../../../src/apps/boundary/store/store.ts';
import { firstChain, nextChain } from '../../../../src/engine/log/entry.ts';
import { until } from '../../../support/until.ts';

/*
 * What every adapter of the storage must do (BND-15). A test has a tenant of its own, so that all of them share one storage.
 */

export interface Opened {
  readonly store: FactStore;
  /** The same storage, as another process of the node has it. */
  readonly other: FactStore;
  stop(): Promise<void>;
}

const { privateKey, publicKey } = generateKeyPairSync('ed25519');
export const sign = (receipt: Receipt) => signReceipt(receipt, { id: 'k1', privateKey });

export const numbers = (from: number, to: number): number[] =>
  Array.from({ length: to - from + 1 }, (_, i) => from + i);

export const record = (messageId: string, changes: Partial<FactRecord> = {}): FactRecord => ({
  v: 1,
  messageId,
  from: 'plant-a' as Zone,
  to: 'enterprise' as Zone,
  acceptedAt: 1,
  producedAt: 0,
  subject: 'order:1',
  predicate: 'has_state',
  object: '{"state":"done"}',
  ...changes,
});

export const fact = (messageId: string, changes: Partial<FactRecord> = {}) => {
  const made = record(messageId, changes);
  return { record: made, digest: contentDigest(made) };
};

export const codeOf = (call: Promise<unknown>): Promise<unknown> =>
  call.then(
    (value) => value,
    ({ code, reason }: { code: string; reason: string }) => `${code} ${reason}`,
  );

export function describeStore(name: string, open: () => Promise<Opened>): void {
  let opened: Opened;
  let store: FactStore;
  beforeAll(async () => {
    opened = await open();
    store = opened.store;
  });
  afterAll(() => opened.stop());

  const streams = () => {
    const tenantId = `t-${randomUUID()}`;
    const of = (buffer: 'store' | 'forward', to = 'enterprise'): StreamId => ({
      tenantId,
      buffer,
      from: 'plant-a',
      to,
    });
    return { tenantId, out: of('store'), into: of('forward'), of };
  };
  const fill = async (stream: StreamId, count: number, prefix = 'm'): Promise<void> => {
    await Promise.all(numbers(1, count).map((n) => store.append(stream, fact(`${prefix}${n}`))));
  };
  const all = (stream: StreamId, after = 0): Promise<StoredEntry[]> =>
    store.read(stream, { after, limit: 1000, maxBytes: 1024 * 1024 });
  const messageIds = (entries: readonly StoredEntry[]) =>
    entries.map(({ record: each }) => ('messageId' in each ? each.messageId : `gap ${each.gap.reason}`));
  /** What a peer would send after an offset. */
  const deliveryOf = async (stream: StreamId, after: number, count = 1000): Promise<Delivery> => {
    const state = await store.state(stream);
    const before = after === 0 ? undefined : (await all(stream, after - 1))[0];
    return {
      epoch: state?.epoch ?? '',
      chainBefore: before?.chain ?? firstChain(state?.epoch ?? ''),
      entries: (await all(stream, after)).slice(0, count),
    };
  };

  describe(`${name}: append`, () => {
    test('BND-3: 64 concurrent appends of one id give one fact and 64 equal offsets', async () => {
      const { out } = streams();
      await fill(out, 3);
      const answers = await Promise.all(
        numbers(1, 64).map((n) => (n % 2 ? store : opened.other).append(out, fact('same'))),
      );
      expect(new Set(answers.map(({ offset }) => offset))).toEqual(new Set([4]));
      expect(answers.filter(({ existing }) => !existing)).toHaveLength(1);
      expect(await all(out)).toHaveLength(4);
    });

    test('BND-3: other content under an id is refused, also for another zone, and nothing is written', async () => {
      const { out, of } = streams();
      await store.append(out, fact('a'));
      const conflict = 'ALREADY_EXISTS conflicting_duplicate';
      expect(await codeOf(store.append(out, fact('a', { object: '2' })))).toBe(conflict);
      expect(await codeOf(store.append(of('store', 'lab'), fact('a', { to: 'lab' as Zone })))).toBe(conflict);
      expect(await store.append(out, fact('a', { producedAt: 9, labels: { b: 'c' } }))).toEqual({
        offset: 1,
        existing: true,
      });
      expect(await all(out)).toHaveLength(1);
      expect((await store.append(out, fact('b'))).offset).toBe(2);
      // Another tenant, and what comes in, are apart.
      const { out: others } = streams();
      expect(await store.append(others, fact('a', { object: '2' }))).toEqual({ offset: 1, existing: false });
    });

    test('BND-3: it is still so after the fact was trimmed', async () => {
      const { out, tenantId } = streams();
      await fill(out, 5);
      expect(await store.trim(out, 4)).toBe(4);
      const [first] = numbers(1, 5).filter((n) => n <= 4);
      const { offset } = await store.append(out, fact(`m${first}`));
      expect(offset).toBeLessThan(5);
      expect(await codeOf(store.append(out, fact('m1', { object: '2' })))).toBe(
        'ALREADY_EXISTS conflicting_duplicate',
      );
      expect(await store.find(tenantId, 'store', 'plant-a', 'm1')).toEqual({
        stream: out,
        offset: 1,
        entry: undefined,
      });
      expect(await all(out)).toHaveLength(1);
    });

    test('BND-4: offsets are dense, and the chain hash of each entry follows from the one before', async () => {
      const { out } = streams();
      await fill(out, 40);
      const { epoch, chainBefore, entries } = await deliveryOf(out, 0);
      expect(epoch).not.toBe('');
      expect(entries.map(({ offset }) => offset)).toEqual(numbers(1, 40));
      let chain = chainBefore;
      for (const entry of entries) {
        chain = nextChain(chain, entry);
        expect(entry.chain).toBe(chain);
      }
      expect(await store.state(out)).toMatchObject({ first: 1, last: 40, chain, fullSince: undefined });
    });

    test('BND-2: a producer that crashed finds its fact by its id', async () => {
      const { out, tenantId } = streams();
      await store.append(out, fact('a', { labels: { line: '4' }, correlationId: 'c' }));
      const found = await store.find(tenantId, 'store', 'plant-a', 'a');
      expect(found).toMatchObject({
        stream: out,
        offset: 1,
        entry: { record: { messageId: 'a', labels: { line: '4' }, correlationId: 'c' } },
      });
      expect(await store.find(tenantId, 'store', 'plant-a', 'b')).toBeUndefined();
      expect(await store.find(tenantId, 'forward', 'plant-a', 'a')).toBeUndefined();
    });

    test('BND-7: a read that waits is woken by an append, of another process too', async () => {
      const { out } = streams();
      const read = opened.other.read(out, { after: 0, limit: 10, maxBytes: 1000, waitMs: 60_000 });
      await store.append(out, fact('a'));
      expect(messageIds(await read)).toEqual(['a']);
    });

    test('BND-9: streams are listed with their bytes; that one is full is kept for all processes', async () => {
      const { out, of, tenantId } = streams();
      const lab = of('store', 'lab');
      await store.append(out, fact('a'));
      await store.append(lab, fact('b', { to: 'lab' as Zone }));
      await store.setFull(out, true);
      const listed = await opened.other.streams(tenantId);
      expect(listed.map(({ to, bytes, fullSince }) => [to, bytes > 50, fullSince !== undefined])).toEqual([
        ['enterprise', true, true],
        ['lab', true, false],
      ]);
      const since = (await store.state(out))?.fullSince;
      await opened.other.setFull(out, true);
      expect((await store.state(out))?.fullSince).toEqual(since);
      await opened.other.setFull(out, false);
      expect((await store.state(out))?.fullSince).toBeUndefined();
      expect(await store.streams('nobody')).toEqual([]);
    });
  });

  describe(`${name}: consumers`, () => {
    const fetch = (stream: StreamId, instance: string, more: object = {}, on = store) =>
      fetchFacts(on, stream, { consumer: 'erp', instance, limit: 10, ...more });
    const confirm = (stream: StreamId, instance: string, offset: number, on = store) =>
      confirmReceipt(on, stream, { consumer: 'erp', instance, offset });

    test('BND-7: the node keeps the cursor; it never goes backwards, nor beyond what was fetched', async () => {
      const { out } = streams();
      await fill(out, 25);
      const first = await fetch(out, 'i1');
      expect(first.entries.map(({ offset }) => offset)).toEqual(numbers(1, 10));
      expect(first).toMatchObject({ cursor: 0, backlog: 25, epoch: (await store.state(out))?.epoch });
      // Not confirmed: the same ones again.
      expect((await fetch(out, 'i1')).entries[0]?.offset).toBe(1);
      expect(await codeOf(confirm(out, 'i1', 11))).toBe('OUT_OF_RANGE not_fetched');
      expect(await confirm(out, 'i1', 7)).toBe(7);
      expect(await confirm(out, 'i1', 3)).toBe(7);
      expect(await fetch(out, 'i1', { limit: 2 })).toMatchObject({ cursor: 7, backlog: 18 });
      expect(await codeOf(confirmReceipt(store, out, { consumer: 'none', offset: 1 }))).toBe(
        'NOT_FOUND unknown_consumer',
      );
    });

    test('BND-7: of two instances only one has the consumer; the other takes over when it is silent', async () => {
      const { out } = streams();
      await fill(out, 5);
      await fetch(out, 'i1');
      expect(await codeOf(fetch(out, 'i2', {}, opened.other))).toBe('FAILED_PRECONDITION consumer_in_use');
      expect(await confirm(out, 'i1', 2)).toBe(2);
      // i1 was silent for as long as its lease.
      const lapsed = await store.openConsumer(out, 'other', {
        instance: 'i1',
        leaseMs: 0,
        start: { after: 0 },
      });
      expect(lapsed.generation).toBe(1);
      let taken: ConsumerState | undefined;
      await until('the lease has run out', async () => {
        taken = await opened.other
          .openConsumer(out, 'other', { instance: 'i2', leaseMs: 60_000, start: { after: 0 } })
          .catch(() => undefined);
        return taken !== undefined;
      });
      expect(taken).toMatchObject({ instance: 'i2', generation: 2, cursor: 0, fetched: 0 });
      expect(await store.noteFetched(out, lapsed, 5)).toBe(false);
      expect(await codeOf(store.confirm(out, 'other', 'i1', 0))).toBe('ABORTED consumer_taken_over');
    });

    test('BND-7: consumers begin anywhere, and can be sought, listed and deleted', async () => {
      const { out } = streams();
      await fill(out, 8);
      const begin = async (consumer: string, start: Parameters<FactStore['seek']>[2]) =>
        (await fetchFacts(store, out, { consumer, start })).cursor;
      expect(await begin('beginning', { after: 0 })).toBe(0);
      expect(await begin('middle', { after: 3 })).toBe(3);
      expect(await begin('end', 'end')).toBe(8);
      expect(await begin('time', { at: new Date(0) })).toBe(0);
      expect(await begin('future', { at: new Date('2999-01-01') })).toBe(8);
      expect(await codeOf(begin('beyond', { after: 9 }))).toBe('OUT_OF_RANGE offset_not_issued');
      expect((await store.consumers(out)).map((each) => [each.name, each.cursor])).toEqual([
        ['beginning', 0],
        ['end', 8],
        ['future', 8],
        ['middle', 3],
        ['time', 0],
      ]);
      expect(await store.deleteConsumer(out, 'time')).toBe(true);
      expect(await store.deleteConsumer(out, 'time')).toBe(false);
      expect(await codeOf(store.seek(out, 'time', 'end'))).toBe('NOT_FOUND unknown_consumer');

      await fetch(out, 'i1');
      await confirm(out, 'i1', 6);
      expect(await store.seek(out, 'erp', { after: 2 })).toMatchObject({ cursor: 2 });
      // What was fetched before the seek is not confirmed by accident.
      expect(await codeOf(confirm(out, 'i1', 8))).toBe('OUT_OF_RANGE not_fetched');
      expect((await fetch(out, 'i1')).entries[0]?.offset).toBe(3);
    });

    test('BND-9: only what every consumer has confirmed is trimmed, and only when it is old enough', async () => {
      const { out } = streams();
      await fill(out, 6);
      const later = new Date(Date.now() + 3_600_000);
      expect(await trimConfirmed(store, out, later)).toBe(0);
      await fetch(out, 'i1');
      await fetchFacts(store, out, { consumer: 'slow' });
      await confirm(out, 'i1', 6);
      expect(await trimConfirmed(store, out, later)).toBe(0);
      await confirmReceipt(store, out, { consumer: 'slow', offset: 4 });
      expect(await trimConfirmed(store, out, new Date(0))).toBe(0);
      expect(await trimConfirmed(store, out, later)).toBe(4);
      expect(await store.state(out)).toMatchObject({ first: 5, last: 6 });
      const { cursor, entries } = await fetchFacts(store, out, { consumer: 'new' });
      expect([cursor, entries[0]?.offset]).toEqual([4, 5]);
    });
  });

  describe(`${name}: deliveries`, () => {
    test('BND-8: facts arrive in order at the same offsets, byte for byte, each once', async () => {
      const { out, into } = streams();
      await fill(out, 30);
      expect(await store.frontier(into)).toBeUndefined();
      const first = await store.deliver(into, await deliveryOf(out, 0, 12), sign);
      expect(first.frontier).toMatchObject({ offset: 12 });
      expect(first.receipt).toMatchObject({ fromOffset: 1, toOffset: 12, chain: first.frontier.chain });
      // The answer was lost: the sender delivers again, and more.
      const again = await store.deliver(into, await deliveryOf(out, 5), sign);
      expect(again.receipt).toMatchObject({ fromOffset: 13, toOffset: 30 });
      const sent = await all(out);
      const received = await all(into);
      expect(received.map(({ offset, key, digest, text }) => [offset, key, digest, text])).toEqual(
        sent.map(({ offset, key, digest, text }) => [offset, key, digest, text]),
      );
      expect(await store.frontier(into)).toEqual({
        epoch: (await store.state(out))?.epoch,
        offset: 30,
        chain: sent.at(-1)?.chain,
      });
      const repeated = await store.deliver(into, await deliveryOf(out, 20), sign);
      expect(repeated).toMatchObject({ receipt: undefined, quarantined: [], frontier: { offset: 30 } });
    });

    test('BND-8: two peers that deliver the same at once leave each fact once', async () => {
      const { out, into } = streams();
      for (const prefix of ['a', 'b', 'c', 'd']) {
        const { last = 0 } = (await store.state(out)) ?? {};
        await fill(out, 20, prefix);
        const delivery = await deliveryOf(out, last);
        const answers = await Promise.all([
          store.deliver(into, delivery, sign),
          opened.other.deliver(into, delivery, sign),
        ]);
        expect(answers.filter(({ receipt }) => receipt)).toHaveLength(1);
      }
      expect(messageIds(await all(into))).toEqual(messageIds(await all(out)));
    });

    test('BND-10: receipts cover everything that was received, are signed, and kept', async () => {
      const { out, into } = streams();
      await fill(out, 10);
      for (const after of [0, 4, 8]) {
        const { receipt } = await store.deliver(into, await deliveryOf(out, after, 4), sign);
        if (receipt) await store.addReceipt('store', receipt);
      }
      const kept = await store.receipts(into, { after: 0, limit: 10 });
      expect(kept.map(({ fromOffset, toOffset }) => [fromOffset, toOffset])).toEqual([
        [1, 4],
        [5, 8],
        [9, 10],
      ]);
      expect(kept.every((receipt) => isSignedBy(receipt, publicKey))).toBe(true);
      expect(await store.receipts(out, { after: 4, limit: 1 })).toEqual([kept[1]]);
    });

    test('BND-4: a gap, a changed fact, another epoch or another stream is refused, and nothing is taken', async () => {
      const { out, into, of } = streams();
      await fill(out, 6);
      await store.deliver(into, await deliveryOf(out, 0, 3), sign);
      const before = await store.frontier(into);
      const next = await deliveryOf(out, 3);
      const refused = async (delivery: Delivery, to = into) =>
        codeOf(store.deliver(to, delivery, sign).then(() => 'taken'));
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
      expect(await store.frontier(into)).toEqual(before);
      expect(await all(into)).toHaveLength(3);
      expect(await refused(next)).toBe('taken');
    });

    test('BND-4: a source that was restored from a backup is refused until its new epoch is accepted', async () => {
      const { out, into, of } = streams();
      await fill(out, 6);
      await store.deliver(into, await deliveryOf(out, 0), sign);
      // Another stream stands for the restored one: the first four facts, then others at the same offsets.
      const restored = streams().out;
      await Promise.all(numbers(1, 8).map((n) => store.append(restored, fact(`m${n > 4 ? n + 100 : n}`))));
      const epoch = (await store.state(out))?.epoch ?? '';
      const delivery = { ...(await deliveryOf(restored, 0)), epoch };
      expect(await codeOf(store.deliver(into, delivery, sign))).toBe('FAILED_PRECONDITION chain_mismatch');
      // The way back: offsets go on behind what the peer has, in a new epoch.
      const next = await store.newEpoch(out, 7);
      const { chain = '' } = (await store.state(out)) ?? {};
      await store.append(out, fact('after'));
      const sent = { ...(await deliveryOf(out, 6)), chainBefore: chain };
      expect(sent.entries.map(({ offset }) => offset)).toEqual([7]);
      expect(await codeOf(store.deliver(into, sent, sign))).toBe('FAILED_PRECONDITION epoch_mismatch');
      expect(await store.acceptEpoch(into, next, chain)).toEqual({ epoch: next, offset: 6, chain });
      expect((await store.deliver(into, sent, sign)).frontier.offset).toBe(7);
      expect(of('store')).toEqual(out);
    });

    test('BND-8: what cannot be taken goes into quarantine, a gap record keeps its offset, the stream goes on', async () => {
      const { out, into, of, tenantId } = streams();
      // The id came here before, on another stream of the zone, as if the source had been restored.
      const elsewhere = of('store', 'lab');
      await store.append(elsewhere, fact('m2', { to: 'lab' as Zone }));
      const source = streams().out;
      await fill(source, 5);
      await store.deliver(of('forward', 'lab'), await deliveryOf(elsewhere, 0), sign);
      const delivery = await deliveryOf(source, 0);
      const entries = delivery.entries.map((each) =>
        each.key === 'm4' ? { ...each, refusal: { reason: 'too_large', message: 'too large' } } : each,
      );
      const { frontier, quarantined } = await store.deliver(into, { ...delivery, entries }, sign);
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
      expect(await store.quarantined(into, { after: 0, limit: 10 })).toMatchObject(expected);
      const received = messageIds(await all(into));
      expect(received).toHaveLength(5);
      expect(received.filter((each) => each.startsWith('gap'))).toHaveLength(2);
      await store.quarantine(
        tenantId,
        quarantined.map((each) => ({ ...each, buffer: 'store' as const })),
      );
      expect(await store.quarantined(out, { after: 0, limit: 10 })).toMatchObject(expected);
      expect((await store.append(out, fact('more'))).offset).toBe(1);
    });

    test('BND-8: a fact that came before with the same content leaves a gap record, and is no poison', async () => {
      const { into } = streams();
      const first = streams().out;
      await fill(first, 3);
      await store.deliver(into, await deliveryOf(first, 0), sign);
      await store.trim(into, 2);
      // After a restore the producers have sent their facts again.
      const epoch = await store.newEpoch(first, 4);
      const { chain = '' } = (await store.state(first)) ?? {};
      await store.acceptEpoch(into, epoch, chain);
      const again = streams().out;
      await fill(again, 3);
      const entries = (await all(again)).map((each, i) => ({ ...each, offset: 4 + i }));
      let before = chain;
      const chained = entries.map((each) => {
        before = nextChain(before, each);
        return { ...each, chain: before };
      });
      const { quarantined } = await store.deliver(
        into,
        { epoch, chainBefore: chain, entries: chained },
        sign,
      );
      expect(quarantined).toEqual([]);
      expect(messageIds(await all(into, 3))).toEqual(Array(3).fill('gap already_delivered'));
    });
  });
}
