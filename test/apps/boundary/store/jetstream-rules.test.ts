/** What holds for the log on JetStream besides the conformance suite. */
import { randomUUID } from 'node:crypto';
import { jetstreamManager } from '@nats-io/jetstream';
import { connect, headers } from '@nats-io/transport-node';
import { expect, onTestFinished, test } from 'vitest';
import { JetStreamLog } from '../../../../src/apps/boundary/store/jetstream/log.ts';
import { Names } from '../../../../src/apps/boundary/store/jetstream/names.ts';
import { NodeStore } from '../../../../src/apps/boundary/store/node-store.ts';
import type { StreamId } from '../../../../src/apps/boundary/store/store.ts';
import { firstChain } from '../../../../src/engine/log/entry.ts';
import { silentLogger } from '../../../../src/engine/logger.ts';
import { type JetStreamServerOptions, privateJetStream } from '../../../support/services/jetstream.ts';
import { storeDatabases } from './databases.ts';
import { codeOf, fact, numbers, sign } from './facts.ts';

async function scene(options: JetStreamServerOptions = {}) {
  const server = await privateJetStream(options);
  onTestFinished(() => server.service[Symbol.asyncDispose]());
  await server.service.start();
  const { databases, close } = await storeDatabases();
  onTestFinished(close);
  const tenantId = randomUUID();
  const open = async (changes: { replicas?: number; monitorUrls?: readonly string[] } = {}) => {
    const log = await JetStreamLog.open(databases[0], {
      servers: [server.url],
      monitorUrls: [server.monitorUrl],
      replicas: 1,
      logger: silentLogger,
      tenantId,
      zone: 'plant-a',
      ...changes,
    });
    onTestFinished(() => log.stop());
    return new NodeStore(databases[0], log);
  };
  const out: StreamId = { tenantId, buffer: 'store', from: 'plant-a', to: 'enterprise' };
  return { server, open, out, into: { ...out, buffer: 'forward' } as StreamId };
}

const reasonOf = (opening: Promise<unknown>): Promise<string> =>
  opening.then(
    () => 'opened',
    (error: Error) => error.message,
  );

test('BND-15: it refuses a server that does not say sync_always, or whose word cannot be had', async () => {
  const careless = await scene({ sync: '2m' });
  expect(await reasonOf(careless.open())).toMatch(/does not say sync_always/);
  const careful = await scene();
  expect(await reasonOf(careful.open({ monitorUrls: ['http://127.0.0.1:1'] }))).toMatch(
    /cannot be confirmed that the NATS servers say sync_always: 0 of 1/,
  );
  expect(await reasonOf(careful.open())).toBe('opened');
});

test('BND-15: it refuses a server whose messages are too small, or with too few servers confirmed for the replicas', async () => {
  const small = await scene({ maxPayload: '1MB' });
  expect(await reasonOf(small.open())).toMatch(/max_payload: 2MB/);
  const { open, server } = await scene();
  const monitorUrls = [server.monitorUrl, 'http://127.0.0.1:1', 'http://127.0.0.1:2'];
  expect(await reasonOf(open({ replicas: 3, monitorUrls }))).toMatch(/cannot be confirmed.*1 of 3/);
});

test('BND-3: a batch whose sender was gone before its end leaves nothing', async () => {
  const { server, open, out } = await scene();
  const store = await open();
  await store.append(out, fact('a'));
  const names = new Names(out);
  const connection = await connect({ servers: server.url });
  for (const [i, subject] of [names.key('b'), names.fact('enterprise', 2)].entries()) {
    const made = headers();
    made.set('Nats-Batch-Id', 'abandoned');
    made.set('Nats-Batch-Sequence', String(i + 1));
    made.set('Nats-Expected-Last-Subject-Sequence', '0');
    connection.publish(subject, 'x', { headers: made });
  }
  await connection.flush();
  await connection.close();
  expect(await store.find(out.tenantId, 'store', 'plant-a', 'b')).toBeUndefined();
  expect(await store.append(out, fact('b'))).toEqual({ offset: 2, existing: false });
  expect(await store.read(out, { after: 0, limit: 10, maxBytes: 10_000 })).toHaveLength(2);
});

test('BND-15: a head of another version, or that is none, is refused, and nothing is appended', async () => {
  const { server, open, out } = await scene();
  const store = await open();
  await store.append(out, fact('a'));
  const names = new Names(out);
  const connection = await connect({ servers: server.url });
  onTestFinished(() => connection.close());
  const put = async (head: string) => void (await connection.request(names.head('enterprise'), head));
  const codes = async () => {
    const calls = [store.state(out), store.append(out, fact('b'))];
    return (await Promise.allSettled(calls)).map((each) => each.status === 'rejected' && each.reason.code);
  };
  for (const head of ['{"v":2}', '{"v":1,"last":"1"}', 'null', 'x']) {
    await put(head);
    expect(await codes()).toEqual(['LOG_DAMAGED', 'LOG_DAMAGED']);
  }
});

test('BND-15: a head that is lost, with its facts still there, ends appends and deliveries with an error, not in a loop', async () => {
  const { server, open, out, into } = await scene();
  const store = await open();
  await store.append(out, fact('a'));
  const { epoch = '' } = (await store.state(out)) ?? {};
  const entries = await store.read(out, { after: 0, limit: 1, maxBytes: 10_000 });
  const delivery = { epoch, chainBefore: firstChain(epoch), entries };
  await store.deliver(into, delivery, sign);
  const connection = await connect({ servers: server.url });
  onTestFinished(() => connection.close());
  const manager = await jetstreamManager(connection);
  for (const stream of [out, into]) {
    const names = new Names(stream);
    await manager.streams.purge(names.stream, { filter: names.head('enterprise') });
  }
  await manager.streams.purge(new Names(into).stream, { filter: new Names(into).key('a') });
  // Another process: this one remembers the head.
  const other = await open();
  const ends = [store.append(out, fact('b')), other.deliver(into, delivery, sign)];
  for (const { reason } of (await Promise.allSettled(ends)) as PromiseRejectedResult[]) {
    expect(reason).toMatchObject({ code: 'LOG_DAMAGED' });
    expect(reason.message).toContain('Nothing was written');
  }
  expect(await codeOf(store.append(out, fact('a')))).toMatchObject({ existing: true });
}, 60_000);

test('BND-3, BND-15: a server that is killed keeps ids and facts; while it is away appends say UNAVAILABLE', async () => {
  const { server, open, out } = await scene();
  const store = await open();
  await Promise.all(numbers(1, 20).map((n) => store.append(out, fact(`m${n}`))));
  await store.trim(out, 15);
  await server.service.kill();
  expect(await codeOf(store.append(out, fact('late')))).toMatch(/^UNAVAILABLE storage_/);
  expect(store.trouble).toMatch(/JetStream cluster with the facts is away/);
  await server.service.start();
  expect(await store.append(out, fact('m1'))).toMatchObject({ existing: true });
  expect((await store.append(out, fact('late'))).offset).toBe(21);
  expect(await store.state(out)).toMatchObject({ first: 16, last: 21 });
});

test('BND-8, BND-10: a delivery that ended between log and receipt is completed by the next one', async () => {
  const { open, out, into } = await scene();
  const store = await open();
  await Promise.all(numbers(1, 1200).map((n) => store.append(out, fact(`m${n}`))));
  const { epoch = '' } = (await store.state(out)) ?? {};
  const entries = [
    ...(await store.read(out, { after: 0, limit: 1000, maxBytes: 4 * 1024 * 1024 })),
    ...(await store.read(out, { after: 1000, limit: 1000, maxBytes: 4 * 1024 * 1024 })),
  ];
  expect(entries).toHaveLength(1200);
  const delivery = { epoch, chainBefore: firstChain(epoch), entries };
  const crash = () => {
    throw new Error('gone');
  };
  await expect(store.deliver(into, delivery, crash)).rejects.toThrow('gone');
  // More than one batch, all of it in the log.
  expect((await store.frontier(into))?.offset).toBe(1200);
  expect(await store.receipts(into, { after: 0, limit: 10 })).toEqual([]);
  expect(await codeOf(store.acceptEpoch(into, randomUUID(), 'ab'.repeat(32)))).toBe(
    'ABORTED delivery_incomplete',
  );
  // A delivery that is refused completes it as well. If that fails, the caller still gets the refusal.
  const refused = { ...delivery, epoch: randomUUID() };
  expect(await codeOf(store.deliver(into, refused, crash))).toBe('FAILED_PRECONDITION epoch_mismatch');
  expect(await store.receipts(into, { after: 0, limit: 10 })).toEqual([]);
  const { receipt } = await store.deliver(into, delivery, sign);
  expect(receipt).toMatchObject({ fromOffset: 1, toOffset: 1200 });
  expect((await store.deliver(into, delivery, sign)).receipt).toEqual(receipt);
  expect(await store.receipts(into, { after: 0, limit: 10 })).toHaveLength(1);
});
