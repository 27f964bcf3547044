import { randomBytes } from 'node:crypto';
import { describe, expect, onTestFinished, test } from 'vitest';
import { HandOff } from '../../../src/apps/boundary/handoff/loop.ts';
import { Pace } from '../../../src/apps/boundary/handoff/pace.ts';
import { pullOnce } from '../../../src/apps/boundary/handoff/pull.ts';
import { pushOnce } from '../../../src/apps/boundary/handoff/push.ts';
import { peerConsumer } from '../../../src/apps/boundary/handoff/source.ts';
import { startBoundaryServer } from '../../../src/apps/boundary/rpc/server.ts';
import { firstChain } from '../../../src/engine/log/entry.ts';
import { silentLogger } from '../../../src/engine/logger.ts';
import { testNode } from './rpc/node.ts';
import { essence, into, out, pulling, twoZones } from './two-zones.ts';

describe('hand-off by push', () => {
  test('BND-8: while the line is cut facts gather, then all cross once, in order, with their objects and receipts', async () => {
    const { plant, enterprise, first, tls, options, append, putObject, all } = await twoZones();
    const handOff = new HandOff({
      stream: out,
      once: (waitMs, signal) => pushOnce(options, waitMs, signal),
      logger: silentLogger,
      waitMs: 1000,
      retry: { minMs: 10, maxMs: 50 },
    });
    onTestFinished(() => handOff.stop());
    handOff.start();
    const contents = new Map<string, Buffer>();
    const some = async (prefix: string): Promise<void> => {
      const bytes = randomBytes(10_000);
      contents.set(`${prefix}.bin`, bytes);
      await append(`${prefix} object`, await putObject(`${prefix}.bin`, bytes));
      await Promise.all(Array.from({ length: 60 }, (_, i) => append(`${prefix}${i}`, i)));
    };
    const crossed = () => enterprise.store.frontier(into).then((frontier) => frontier?.offset ?? 0);
    await some('a');
    await expect.poll(crossed, { timeout: 60_000 }).toBe(61);
    let server = first;
    for (const prefix of ['b', 'c']) {
      // The line is cut in the middle of what goes over it.
      const going = some(prefix);
      await server.stop();
      await going;
      await expect.poll(() => handOff.mode, { timeout: 60_000 }).toBe('autonomous');
      await some(`${prefix} cut`);
      server = await startBoundaryServer({ node: enterprise.node, host: '127.0.0.1', port: first.port, tls });
      const again = server;
      onTestFinished(() => again.stop());
      await expect.poll(() => handOff.mode, { timeout: 60_000 }).toBe('normal');
    }
    const sent = await all(plant, out);
    expect(sent).toHaveLength(5 * 61);
    await expect.poll(crossed, { timeout: 60_000 }).toBe(sent.length);
    expect(essence(await all(enterprise, into))).toEqual(essence(sent));
    for (const [key, bytes] of contents) {
      const parts: Uint8Array[] = [];
      const stored = await enterprise.objects.get({ tenantId: 'default', bucket: 'files', key });
      for await (const part of stored.bytes) parts.push(part);
      expect(Buffer.concat(parts).equals(bytes)).toBe(true);
    }
    // Receipts cover everything, on the receiver's side without exception.
    const receipts = await enterprise.store.receipts(into, { after: 0, limit: 1000 });
    let covered = 0;
    for (const receipt of receipts) {
      expect(receipt.fromOffset).toBe(covered + 1);
      expect(receipt.chain).toBe(sent[receipt.toOffset - 1]?.chain);
      covered = receipt.toOffset;
    }
    expect(covered).toBe(sent.length);
    await expect
      .poll(async () => (await plant.store.consumers(out)).map(({ name, cursor }) => [name, cursor]))
      .toEqual([[peerConsumer('enterprise'), sent.length]]);
    expect(await enterprise.store.quarantined(into, { after: 0, limit: 10 })).toEqual([]);
  }, 240_000);

  test('BND-8: a fact whose object has another content there goes into quarantine on both sides, the others cross', async () => {
    const { plant, enterprise, append, putObject, push, all } = await twoZones();
    await putObject('taken', Buffer.from('theirs'), enterprise);
    await append('a');
    await append('poison', await putObject('taken', Buffer.from('ours')));
    await append('b');
    expect(await push()).toBe(3);
    expect((await all(enterprise, into)).map(({ key }) => key.includes('gap'))).toEqual([false, true, false]);
    for (const kept of [
      await enterprise.store.quarantined(into, { after: 0, limit: 10 }),
      await plant.store.quarantined(out, { after: 0, limit: 10 }),
    ])
      expect(kept).toMatchObject([{ offset: 2, messageId: 'poison', reason: 'object_differs' }]);
    expect(await push()).toBe(0);
  });

  test('BND-4: a sender that was restored from a backup sends nothing, and says what to do', async () => {
    const { plant, enterprise, append, push, options } = await twoZones();
    await append('a');
    await push();
    // A twin that has lost the second fact, and got another one.
    const twin = await twoZones();
    for (const id of ['x', 'y', 'z']) await twin.append(id);
    const restored = { ...options, store: twin.plant.store, objects: twin.plant.objects };
    await expect(pushOnce(restored, 0, new AbortController().signal)).rejects.toMatchObject({
      reason: 'source_restored',
    });
    expect((await enterprise.store.frontier(into))?.offset).toBe(1);
    expect(await plant.store.receipts(out, { after: 0, limit: 10 })).toHaveLength(1);
  });

  test('BND-9: a backlog drains in batches of its pace, and what is appended now crosses at once', async () => {
    const { plant, options, append } = await twoZones();
    let now = 0;
    const waits: number[] = [];
    const pace = new Pace({
      factsPerSecond: 10,
      isBusy: () => plant.node.intake.isBusy,
      clock: () => now,
      wait: async (ms) => {
        waits.push(ms);
        now += ms;
      },
    });
    const push = () => pushOnce({ ...options, pace }, 0, new AbortController().signal);
    for (let n = 1; n <= 35; n++) await append(`m${n}`, n);
    expect([await push(), await push(), await push(), await push()]).toEqual([10, 10, 10, 5]);
    expect(waits).toEqual([1000, 1000]);
    const appending = append('now');
    expect(plant.node.intake.isBusy).toBe(true);
    await appending;
    expect(plant.node.intake.isBusy).toBe(false);
    expect(await push()).toBe(1);
    expect(waits).toEqual([1000, 1000]);
  });

  test('BND-10: nothing is confirmed by a receipt that the other zone has not signed', async () => {
    const { plant, append, options } = await twoZones();
    await append('a');
    const forged = { ...options, isGenuine: () => false };
    await expect(pushOnce(forged, 0, new AbortController().signal)).rejects.toMatchObject({
      reason: 'bad_receipt',
    });
    expect((await plant.store.consumers(out))[0]?.cursor).toBe(0);
  });
});

describe('hand-off by pull', () => {
  test('BND-8: the receiver fetches facts and objects, both sides keep the receipts, and quarantine what is poison', async () => {
    const { plant, enterprise, append, putObject, all, pull } = await pulling();
    expect(await pull()).toBe(0);
    await putObject('taken', Buffer.from('theirs'), enterprise);
    for (let n = 1; n <= 25; n++) await append(`m${n}`, n);
    await append('poison', await putObject('taken', Buffer.from('ours')));
    await append('good', await putObject('x', Buffer.from('bytes')));
    expect([await pull(), await pull(), await pull()]).toEqual([20, 7, 0]);
    const sent = essence(await all(plant, out));
    const received = essence(await all(enterprise, into));
    expect(received.filter((_, i) => i !== 25)).toEqual(sent.filter((_, i) => i !== 25));
    const kept = await plant.store.receipts(out, { after: 0, limit: 10 });
    expect(kept.map(({ fromOffset, toOffset }) => [fromOffset, toOffset])).toEqual([
      [1, 20],
      [21, 27],
    ]);
    expect(kept).toEqual(await enterprise.store.receipts(into, { after: 0, limit: 10 }));
    expect(await plant.store.quarantined(out, { after: 0, limit: 10 })).toMatchObject([
      { offset: 26, messageId: 'poison', reason: 'object_differs' },
    ]);
    expect((await plant.store.consumers(out)).map(({ name, cursor }) => [name, cursor])).toEqual([
      ['peer:enterprise', 27],
    ]);
    expect(await enterprise.objects.info({ tenantId: 'default', bucket: 'files', key: 'x' })).toMatchObject({
      size: 5,
    });
  });

  test('BND-8: a confirmation that was lost is made up for; a receiver that was restored gets again what it lacks', async () => {
    const { plant, enterprise, append, all, options, pull } = await pulling();
    for (let n = 1; n <= 5; n++) await append(`m${n}`, n);
    const deaf = {
      ...options,
      peer: { ...options.peer, confirmReceipt: () => Promise.reject(new Error('cut')) },
    };
    await expect(pullOnce(deaf, 0, new AbortController().signal)).rejects.toThrow('cut');
    expect((await plant.store.consumers(out))[0]?.cursor).toBe(0);
    expect(await pull()).toBe(0);
    expect((await plant.store.consumers(out))[0]?.cursor).toBe(5);
    expect(await all(enterprise, into)).toHaveLength(5);
    // Another node of the zone, with an older database.
    const older = (await testNode('enterprise')).store;
    const first = await plant.store.read(out, { after: 0, limit: 2, maxBytes: 10_000 });
    const { epoch = '' } = (await plant.store.state(out)) ?? {};
    await older.deliver(into, { epoch, chainBefore: firstChain(epoch), entries: first }, options.sign);
    expect(await pullOnce({ ...options, store: older }, 0, new AbortController().signal)).toBe(3);
    expect((await older.frontier(into))?.offset).toBe(5);
  });

  test('BND-4: a source that was restored is noticed, and nothing is taken or confirmed', async () => {
    const { plant, append, options } = await pulling();
    await append('a');
    await append('b');
    const { epoch = '' } = (await plant.store.state(out)) ?? {};
    const peerHas = async (have: { epoch: string; offset: bigint; chain: string }) =>
      options.peer
        .fetchFacts({
          stream: { fromZone: 'plant-a', toZone: 'enterprise' },
          consumerName: 'peer:enterprise',
          instanceId: 'e1',
          have,
        })
        .catch(({ rawMessage }: { rawMessage: string }) => rawMessage);
    const chain = (await plant.store.state(out))?.chain ?? '';
    expect(await peerHas({ epoch, offset: 3n, chain })).toContain('source_restored');
    expect(await peerHas({ epoch, offset: 2n, chain: 'ab'.repeat(32) })).toContain('source_restored');
    expect(await peerHas({ epoch: 'other', offset: 2n, chain })).toContain('source_restored');
    expect(await plant.store.consumers(out)).toEqual([]);
    // What it has it may confirm now, with its receipts.
    expect(await peerHas({ epoch, offset: 2n, chain })).toMatchObject({ cursor: 0n, backlog: 2n });
    const named = (consumerName: string) =>
      options.peer.fetchFacts({ stream: { fromZone: 'plant-a', toZone: 'enterprise' }, consumerName });
    await expect(named('erp')).rejects.toThrow('of a peer must be "peer:enterprise"');
  });
});
