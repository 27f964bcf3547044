import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { signReceipt } from '../../../../src/apps/boundary/domain/receipt.ts';
import { startBoundaryServer } from '../../../../src/apps/boundary/rpc/server.ts';
import { ParkedFacts } from '../../../../src/apps/boundary/sdk/consumer/parked-facts.ts';
import type { Gap, ReceivedFact } from '../../../../src/apps/boundary/sdk/consumer/received.ts';
import type { StreamId } from '../../../../src/apps/boundary/store/store.ts';
import type { Database } from '../../../../src/engine/database/database.ts';
import { PermanentError } from '../../../../src/engine/errors.ts';
import { firstChain } from '../../../../src/engine/log/entry.ts';
import { until } from '../../../support/until.ts';
import { testNode } from '../rpc/node.ts';
import { allEntries, consumer, cuttingProxy, fact, numbers, out, plant, producer, scratch } from './scene.ts';

async function withFacts(count: number) {
  const scene = await plant();
  const to = await producer({ url: scene.url, outbox: scene.outbox });
  const more = async (first: number, n: number): Promise<void> => {
    await Promise.all(numbers(n, first).map((each) => to.append(fact(`m${each}`, each))));
    await to.flush();
  };
  await more(1, count);
  const cursor = async (name = 'erp') =>
    (await scene.store.consumers(out)).find((each) => each.name === name)?.cursor;
  return { ...scene, to, more, cursor };
}

const collector = () => {
  const seen: number[] = [];
  return { seen, handler: ({ object }: ReceivedFact) => void seen.push(object as number) };
};

describe('the loop', () => {
  test('BND-14: facts come in order, with everything about them, and are confirmed after the handler', async () => {
    const { url, to, cursor } = await withFacts(0);
    const attachment = { bucket: 'b', key: 'k', source: Buffer.from('bytes'), mediaType: 'text/plain' };
    const sent = {
      ...fact('with all', { n: 1 }),
      correlationId: 'c',
      causationId: 'k',
      labels: { line: '4' },
    };
    await to.append({ ...sent, attachment, producedAt: new Date(5) });
    const seen: ReceivedFact[] = [];
    let content = '';
    let cursorInHandler: number | undefined = -1;
    const from = consumer({
      url,
      handler: async (received, { readObject, attempt }) => {
        for await (const part of readObject()) content += Buffer.from(part).toString();
        cursorInHandler = await cursor();
        expect(attempt).toBe(1);
        seen.push(received);
      },
    }).start();
    await until('it is confirmed', async () => (await cursor()) === 1);
    expect([content, cursorInHandler]).toEqual(['bytes', 0]);
    expect(seen).toMatchObject([
      {
        offset: 1,
        messageId: 'with all',
        fromZone: 'plant-a',
        toZone: 'enterprise',
        subject: 'work_order:WO-1',
        predicate: 'has_state',
        object: { n: 1 },
        objectJson: '{"n":1}',
        reference: { bucket: 'b', key: 'k', size: 5, mediaType: 'text/plain' },
        correlationId: 'c',
        causationId: 'k',
        labels: { line: '4' },
        producedAt: new Date(5),
      },
    ]);
    expect(from.mode).toBe('consuming');
    await from.stop();
    await from.done;
    expect(from.mode).toBe('stopped');
  });

  test('BND-14: a stop waits for the handler, confirms what is done, and the next one goes on behind it', async () => {
    const { url, more, cursor } = await withFacts(10);
    const { seen, handler } = collector();
    const third = Promise.withResolvers<void>();
    const release = Promise.withResolvers<void>();
    const first = consumer({
      url,
      handler: async (received) => {
        if (received.object === 3) {
          third.resolve();
          await release.promise;
        }
        handler(received);
      },
    }).start();
    await third.promise;
    const stopped = first.stop();
    release.resolve();
    await stopped;
    expect(seen).toEqual([1, 2, 3]);
    expect(await cursor()).toBe(3);
    await more(11, 5);
    consumer({ url, handler }).start();
    await until('it has all of them', () => seen.length === 15);
    expect(seen).toEqual(numbers(15));
  });

  test('BND-14: a consumer that is new begins where it says', async () => {
    const { url, more, cursor } = await withFacts(5);
    const late = collector();
    const middle = collector();
    consumer({ url, name: 'late', start: 'end', handler: late.handler }).start();
    consumer({ url, name: 'middle', start: { after: 3 }, handler: middle.handler }).start();
    await until(
      'both have begun',
      async () => (await cursor('late')) === 5 && (await cursor('middle')) === 5,
    );
    await more(6, 2);
    await until('both have them', () => late.seen.length === 2 && middle.seen.length === 4);
    expect([late.seen, middle.seen]).toEqual([
      [6, 7],
      [4, 5, 6, 7],
    ]);
  });

  test('BND-14: while the node is gone it waits, and goes on without a gap', async () => {
    const { node, store } = await testNode('plant-a');
    const first = await startBoundaryServer({ node, host: '127.0.0.1', port: 0 });
    const { port } = first;
    const url = `http://127.0.0.1:${port}`;
    const to = await producer({ url, outbox: join(await scratch(), 'outbox.db') });
    const { seen, handler } = collector();
    const from = consumer({ url, handler }).start();
    await to.append(fact('m1', 1));
    const cursor = async () => (await store.consumers(out))[0]?.cursor;
    await until('the first is confirmed', async () => (await cursor()) === 1);
    await first.stop();
    await until('it has noticed', () => from.trouble?.includes('no answer') === true);
    expect(from.mode).toBe('disconnected');
    for (const n of [2, 3]) await to.append(fact(`m${n}`, n));
    const again = await startBoundaryServer({ node, host: '127.0.0.1', port });
    onTestFinished(() => again.stop());
    await until('all are confirmed', async () => (await cursor()) === 3);
    expect(seen).toEqual([1, 2, 3]);
  });
});

describe('instances', () => {
  test('BND-14: one instance consumes, the other stands by and takes over when the first is silent', async () => {
    const { url, database, more } = await withFacts(3);
    const a = collector();
    const b = collector();
    const first = consumer({ url, instance: 'a', handler: a.handler }).start();
    await until('the first has them', () => a.seen.length === 3);
    const second = consumer({ url, instance: 'b', handler: b.handler }).start();
    await until('the second stands by', () => second.mode === 'standby');
    expect(second.trouble).toContain('in use by instance "a"');
    await first.stop();
    // As if the lease had run out.
    await lapse(database);
    await more(4, 2);
    await until('the second has the rest', () => b.seen.length === 2);
    expect([a.seen, b.seen, second.mode]).toEqual([[1, 2, 3], [4, 5], 'consuming']);
  });

  test('BND-14: an instance that was taken over confirms nothing, and stands by', async () => {
    const { url, database, cursor } = await withFacts(3);
    const a = collector();
    const b = collector();
    const paused = Promise.withResolvers<void>();
    const wake = Promise.withResolvers<void>();
    const first = consumer({
      url,
      instance: 'a',
      handler: async (received) => {
        a.handler(received);
        if (received.object !== 1) return;
        paused.resolve();
        await wake.promise;
      },
    }).start();
    await paused.promise;
    await lapse(database);
    consumer({ url, instance: 'b', handler: b.handler }).start();
    await until('the second has all', async () => (await cursor()) === 3);
    wake.resolve();
    await until('the first has noticed', () => first.mode === 'standby');
    expect(b.seen).toEqual([1, 2, 3]);
    expect(await cursor()).toBe(3);
  });
});

describe('what cannot be handled', () => {
  const poison = { attempts: 3, backoff: { minMs: 1, maxMs: 2 } };

  test('BND-14: it stops before a fact whose handler fails as often as it may, and has confirmed what came before', async () => {
    const { url, cursor } = await withFacts(5);
    const attempts: number[] = [];
    const from = consumer({
      url,
      poison,
      handler: ({ object }, { attempt }) => {
        if (object === 3) {
          attempts.push(attempt);
          throw new Error('cannot read it');
        }
      },
    }).start();
    await expect(from.done).rejects.toMatchObject({
      code: 'POISON_FACT',
      fact: { messageId: 'm3', offset: 3 },
      message: expect.stringContaining('cannot read it'),
    });
    expect([attempts, await cursor(), from.mode]).toEqual([[1, 2, 3], 2, 'stopped']);
  });

  test('BND-14: or it parks the fact and goes on; a parked one can be handled later, or dropped', async () => {
    const { url, cursor } = await withFacts(6);
    const parked = await ParkedFacts.open(join(await scratch(), 'parked.db'));
    onTestFinished(() => parked.close());
    const { seen, handler } = collector();
    let runs = 0;
    consumer({
      url,
      poison: { ...poison, parkIn: parked },
      handler: (received) => {
        if (received.object === 2) runs += 1;
        if (received.object === 2) throw new Error('a bug');
        if (received.object === 5) throw new PermanentError('BAD', 'it will never do');
        handler(received);
      },
    }).start();
    await until('all are confirmed', async () => (await cursor()) === 6);
    expect([seen, runs]).toEqual([[1, 3, 4, 6], 3]);
    const [two, five] = parked.list();
    expect([two, five]).toMatchObject([
      { consumer: 'erp', fact: { messageId: 'm2', object: 2, offset: 2 }, error: 'a bug', attempts: 3 },
      { fact: { messageId: 'm5' }, error: 'it will never do', attempts: 1 },
    ]);
    expect(two?.fact.acceptedAt).toBeInstanceOf(Date);
    // It came again after a crash: still one.
    if (two) parked.park(two);
    expect(parked.list()).toHaveLength(2);
    await expect(
      parked.retry(two?.id ?? 0, () => {
        throw new Error('still a bug');
      }),
    ).rejects.toThrow('still a bug');
    expect(parked.list({ limit: 1 })).toMatchObject([{ error: 'still a bug', attempts: 4 }]);
    await parked.retry(two?.id ?? 0, handler);
    expect(seen).toEqual([1, 3, 4, 6, 2]);
    expect([parked.drop(five?.id ?? 0), parked.drop(five?.id ?? 0), parked.list()]).toEqual([
      true,
      false,
      [],
    ]);
    await expect(parked.retry(99, handler)).rejects.toThrow('no parked fact 99');
  });

  test('BND-14: a node that is gone while a handler reads an object makes no poison of the fact', async () => {
    const { port, to, cursor } = await withFacts(0);
    const attachment = { bucket: 'b', key: 'k', source: Buffer.from('bytes') };
    await to.append({ ...fact('with file'), attachment });
    await to.flush();
    const proxy = await cuttingProxy(port);
    let runs = 0;
    const from = consumer({
      url: proxy.url,
      poison: { attempts: 1 },
      handler: async (_, { readObject }) => {
        runs += 1;
        proxy.losesAnswers = runs < 3;
        try {
          for await (const part of readObject()) expect(Buffer.from(part).toString()).toBe('bytes');
        } catch (error) {
          throw new Error('the handler says it in its own words', { cause: error });
        } finally {
          proxy.losesAnswers = false;
        }
      },
    }).start();
    await until('it is confirmed', async () => (await cursor()) === 1);
    expect([runs, from.mode]).toEqual([3, 'consuming']);
  });

  test('BND-14: a fact that cannot be parked either stops the consumer before it', async () => {
    const { url, cursor } = await withFacts(2);
    const from = consumer({
      url,
      poison: {
        attempts: 1,
        parkIn: () => {
          throw new Error('disk full');
        },
      },
      handler: ({ object }) => {
        if (object === 2) throw new Error('a bug');
      },
    }).start();
    await expect(from.done).rejects.toThrow('could not be parked');
    expect(await cursor()).toBe(1);
  });

  test('BND-14: gaps have a callback of their own, in their place', async () => {
    const { store: source, to } = await withFacts(4);
    await to.close();
    const { epoch = '' } = (await source.state(out)) ?? {};
    const enterprise = await testNode('enterprise');
    const into: StreamId = { ...out, buffer: 'forward' };
    const refusal = { reason: 'too_large', message: 'it is too large for this zone' };
    const entries = (await allEntries(source, out)).map((entry) =>
      entry.offset === 3 ? { ...entry, refusal } : entry,
    );
    await enterprise.store.deliver(into, { epoch, chainBefore: firstChain(epoch), entries }, (receipt) =>
      signReceipt(receipt, { id: 'k1', privateKey: enterprise.privateKey }),
    );
    // The consumer is known, and has not fetched the first fact when that is removed.
    await enterprise.store.openConsumer(into, 'erp', { instance: 'i1', leaseMs: 0, start: { after: 0 } });
    await enterprise.store.trim(into, 1);
    const { port } = await enterprise.serve();
    const inOrder: (number | Gap)[] = [];
    consumer({
      url: `http://127.0.0.1:${port}`,
      onGap: (gap) => inOrder.push(gap),
      handler: ({ object }) => inOrder.push(object as number),
    }).start();
    await until('it is confirmed', async () => (await enterprise.store.consumers(into))[0]?.cursor === 4);
    expect(inOrder).toEqual([
      { kind: 'removed', fromOffset: 1, toOffset: 1 },
      2,
      { kind: 'quarantined', offset: 3, ...refusal, messageId: 'm3' },
      4,
    ]);
  });
});

/** Ends all leases, as thirty seconds of silence do. */
async function lapse(database: Database): Promise<void> {
  await database.query(`update boundary.consumers set leased_until = clock_timestamp() - interval '1 s'`);
}
