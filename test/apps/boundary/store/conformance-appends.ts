import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import type { Zone } from '../../../../src/apps/boundary/domain/zones.ts';
import { nextChain } from '../../../../src/engine/log/entry.ts';
import { until } from '../../../support/until.ts';
import { codeOf, fact, numbers } from './facts.ts';
import { type Opened, sceneOn } from './scene.ts';

/** A reader that waits polls every second. In this test it does so after a minute. */
function withoutPolls(): { readonly count: number } {
  const polls = { count: 0 };
  const { setTimeout: timer } = globalThis;
  const spy = vi.spyOn(globalThis, 'setTimeout').mockImplementation(((
    work: () => void,
    ms?: number,
    ...rest: []
  ) => {
    if (ms === 1000) polls.count += 1;
    return timer(work, ms === 1000 ? 60_000 : ms, ...rest);
  }) as typeof setTimeout);
  onTestFinished(() => spy.mockRestore());
  return polls;
}

export function describeAppends(name: string, opened: () => Opened): void {
  const { streams, fill, all, messageIds, deliveryOf } = sceneOn(opened);

  describe(`${name}: append`, () => {
    test('BND-3: 64 concurrent appends of one id give one fact and 64 equal offsets', async () => {
      const { out } = streams();
      await fill(out, 3);
      const answers = await Promise.all(
        numbers(1, 64).map((n) => (n % 2 ? opened().store : opened().other).append(out, fact('same'))),
      );
      expect(new Set(answers.map(({ offset }) => offset))).toEqual(new Set([4]));
      expect(answers.filter(({ existing }) => !existing)).toHaveLength(1);
      expect(await all(out)).toHaveLength(4);
    });

    test('BND-3: other content under an id is refused, also for another zone, and nothing is written', async () => {
      const { out, of } = streams();
      await opened().store.append(out, fact('a'));
      const conflict = 'ALREADY_EXISTS conflicting_duplicate';
      expect(await codeOf(opened().store.append(out, fact('a', { object: '2' })))).toBe(conflict);
      expect(await codeOf(opened().store.append(of('store', 'lab'), fact('a', { to: 'lab' as Zone })))).toBe(
        conflict,
      );
      expect(await opened().store.append(out, fact('a', { producedAt: 9, labels: { b: 'c' } }))).toEqual({
        offset: 1,
        existing: true,
      });
      expect(await all(out)).toHaveLength(1);
      expect((await opened().store.append(out, fact('b'))).offset).toBe(2);
      // Another tenant, and what comes in, are apart.
      const { out: others } = streams();
      expect(await opened().store.append(others, fact('a', { object: '2' }))).toEqual({
        offset: 1,
        existing: false,
      });
    });

    test('BND-16: appended in order, again after a part of it: what is there stays, the rest follows', async () => {
      const { out } = streams();
      const facts = numbers(1, 600).map((n) => fact(`e${n}`));
      await opened().store.appendInOrder(out, facts.slice(0, 100));
      await Promise.all([
        opened().store.appendInOrder(out, facts),
        opened().store.append(out, fact('other')),
      ]);
      await opened().other.appendInOrder(out, facts);
      const ids = messageIds(await all(out));
      expect(ids).toHaveLength(601);
      expect(ids.filter((id) => id !== 'other')).toEqual(facts.map(({ record }) => record.messageId));
      expect(await codeOf(opened().store.appendInOrder(out, [fact('e7', { object: '2' })]))).toBe(
        'ALREADY_EXISTS conflicting_duplicate',
      );
      // Of several, the error names the one that conflicts: with the log, or within the call.
      for (const several of [
        [fact('e1'), fact('e8', { object: '2' }), fact('e9', { object: '2' })],
        [fact('new'), fact('e8'), fact('e8', { object: '2' })],
      ])
        await expect(opened().store.appendInOrder(out, several)).rejects.toMatchObject({
          message: expect.stringMatching(/^message id "e8" of zone "plant-a" was used before/),
          details: { message_id: 'e8' },
        });
      expect((await all(out)).length).toBeLessThanOrEqual(602);
    });

    test('BND-14: facts of one call share commits with others, and are in its order; each has its own answer', async () => {
      const { out } = streams();
      await opened().store.append(out, fact('taken'));
      const call = [
        fact('taken', { object: '2' }),
        ...numbers(1, 600).map((n) => fact(`c${n}`)),
        fact('taken'),
      ];
      const others = Promise.all(numbers(1, 600).map((n) => opened().store.append(out, fact(`o${n}`))));
      const [conflict, ...answers] = await opened().store.appendAll(out, call);
      await others;
      expect(conflict).toMatchObject({ code: 'ALREADY_EXISTS', reason: 'conflicting_duplicate' });
      expect(answers.at(-1)).toEqual({ offset: 1, existing: true });
      const ids = messageIds([...(await all(out)), ...(await all(out, 1000))]);
      expect(ids.filter((id) => id.startsWith('c'))).toEqual(numbers(1, 600).map((n) => `c${n}`));
      expect(ids).toHaveLength(1201);
    });

    test('BND-3: it is still so after the fact was trimmed', async () => {
      const { out, tenantId } = streams();
      await fill(out, 5);
      expect(await opened().store.trim(out, 4)).toBe(4);
      const [first] = numbers(1, 5).filter((n) => n <= 4);
      const { offset } = await opened().store.append(out, fact(`m${first}`));
      expect(offset).toBeLessThan(5);
      expect(await codeOf(opened().store.append(out, fact('m1', { object: '2' })))).toBe(
        'ALREADY_EXISTS conflicting_duplicate',
      );
      const { digest = '', ...found } = (await opened().store.find(tenantId, 'store', 'plant-a', 'm1')) ?? {};
      expect(found).toEqual({ stream: out, offset: 1, entry: undefined });
      expect(digest.length).toBeGreaterThanOrEqual(32);
      expect(fact('m1').digest.startsWith(digest)).toBe(true);
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
      expect(await opened().store.state(out)).toMatchObject({
        first: 1,
        last: 40,
        chain,
        fullSince: undefined,
      });
    });

    test('BND-2: a producer that crashed finds its fact by its id', async () => {
      const { out, tenantId } = streams();
      await opened().store.append(out, fact('a', { labels: { line: '4' }, correlationId: 'c' }));
      const found = await opened().store.find(tenantId, 'store', 'plant-a', 'a');
      expect(found).toMatchObject({
        stream: out,
        offset: 1,
        entry: { record: { messageId: 'a', labels: { line: '4' }, correlationId: 'c' } },
      });
      expect(await opened().store.find(tenantId, 'store', 'plant-a', 'b')).toBeUndefined();
      expect(await opened().store.find(tenantId, 'forward', 'plant-a', 'a')).toBeUndefined();
    });

    test('BND-7: a read that waits is woken by an append, of another process too', async () => {
      const { out } = streams();
      // Polls would find it as well: none comes within the minute.
      const polls = withoutPolls();
      for (const [i, id] of ['a', 'b'].entries()) {
        const before = polls.count;
        const read = opened().other.read(out, { after: i, limit: 10, maxBytes: 1000, waitMs: 50_000 });
        await until('the reader waits', () => polls.count > before);
        await sleep(200);
        await opened().store.append(out, fact(id));
        expect(messageIds(await read)).toEqual([id]);
      }
    });

    test('BND-9: streams are listed with their bytes; that one is full is kept for all processes', async () => {
      const { out, of, tenantId } = streams();
      const lab = of('store', 'lab');
      await opened().store.append(out, fact('a'));
      await opened().store.append(lab, fact('b', { to: 'lab' as Zone }));
      await opened().store.setFull(out, true);
      const listed = await opened().other.streams(tenantId);
      expect(listed.map(({ to, bytes, fullSince }) => [to, bytes > 50, fullSince !== undefined])).toEqual([
        ['enterprise', true, true],
        ['lab', true, false],
      ]);
      const since = (await opened().store.state(out))?.fullSince;
      await opened().other.setFull(out, true);
      expect((await opened().store.state(out))?.fullSince).toEqual(since);
      await opened().other.setFull(out, false);
      expect((await opened().store.state(out))?.fullSince).toBeUndefined();
      expect(await opened().store.streams('nobody')).toEqual([]);
    });
  });
}
