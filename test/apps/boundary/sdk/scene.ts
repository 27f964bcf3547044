import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { Consumer, type ConsumerOptions } from '../../../../src/apps/boundary/sdk/consumer/consumer.ts';
import type { ProducerFact } from '../../../../src/apps/boundary/sdk/fact.ts';
import {
  OutboxProducer,
  type OutboxProducerOptions,
} from '../../../../src/apps/boundary/sdk/outbox/producer.ts';
import type { FactStore, StoredEntry, StreamId } from '../../../../src/apps/boundary/store/store.ts';
import { silentLogger } from '../../../../src/engine/logger.ts';
import { type TestNodeOptions, testNode } from '../rpc/node.ts';

export const out: StreamId = { tenantId: 'default', buffer: 'store', from: 'plant-a', to: 'enterprise' };

export async function scratch(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'tallyman-sdk-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

/** A node of zone plant-a that serves on loopback, and a folder for outboxes. */
export async function plant(options: TestNodeOptions = {}) {
  const scene = await testNode('plant-a', options);
  const { port } = await scene.serve();
  const folder = await scratch();
  const url = `http://127.0.0.1:${port}`;
  return {
    ...scene,
    url,
    port,
    folder,
    nodeFolder: scene.folder,
    outbox: join(folder, 'outbox.db'),
    entries: () => allEntries(scene.store, out),
    ids: async () => (await allEntries(scene.store, out)).map(({ key }) => key),
  };
}

export async function allEntries(store: FactStore, stream: StreamId): Promise<StoredEntry[]> {
  const read: StoredEntry[] = [];
  for (;;) {
    const page = await store.read(stream, { after: read.at(-1)?.offset ?? 0, limit: 1000, maxBytes: 1e8 });
    if (page.length === 0) return read;
    read.push(...page);
  }
}

export async function producer(
  options: Pick<OutboxProducerOptions, 'url' | 'outbox'> & Partial<OutboxProducerOptions>,
): Promise<OutboxProducer> {
  const opened = await OutboxProducer.open({
    fromZone: 'Plant A',
    logger: silentLogger,
    retry: { minMs: 10, maxMs: 100 },
    ...options,
  });
  onTestFinished(() => opened.close());
  return opened;
}

export function consumer(
  options: Pick<ConsumerOptions, 'url' | 'handler'> & Partial<ConsumerOptions>,
): Consumer {
  const made = new Consumer({
    fromZone: 'plant-a',
    toZone: 'enterprise',
    name: 'erp',
    instance: 'i1',
    onGap: (gap) => {
      throw new Error(`there is a gap: ${JSON.stringify(gap)}`);
    },
    logger: silentLogger,
    waitMs: 1000,
    retry: { minMs: 10, maxMs: 100 },
    ...options,
  });
  onTestFinished(() => made.stop());
  return made;
}

export const fact = (
  messageId: string,
  object: unknown = messageId,
): ProducerFact & { messageId: string } => ({
  messageId,
  toZone: 'Enterprise',
  subject: 'work_order:WO-1',
  predicate: 'has_state',
  object,
});

export const numbers = (count: number, first = 1): number[] =>
  Array.from({ length: count }, (_, i) => first + i);

export interface CuttingProxy {
  readonly url: string;
  /** How many requests have come through: what the client has sent reaches the node in any case. */
  requests: number;
  /** From now on, or no longer: what the node answers is lost, and the connection ends instead. */
  losesAnswers: boolean;
  /** From now on, or no longer: nothing gets through, in either direction, and nobody is told. */
  isFrozen: boolean;
}

/** Stands between a client and a node. */
export async function cuttingProxy(port: number): Promise<CuttingProxy> {
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const node = connect(port, '127.0.0.1');
    for (const socket of [client, node]) {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => sockets.delete(socket));
    }
    client.on('data', (chunk) => {
      if (proxy.isFrozen) return;
      proxy.requests += Number(chunk.includes('POST /'));
      node.write(chunk);
    });
    node.on('data', (chunk) => {
      if (proxy.isFrozen) return;
      if (proxy.losesAnswers) client.resetAndDestroy();
      else client.write(chunk);
    });
    client.on('close', () => node.destroy());
    node.on('close', () => client.destroy());
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const address = server.address();
  const proxy: CuttingProxy = {
    url: `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`,
    requests: 0,
    losesAnswers: false,
    isFrozen: false,
  };
  return proxy;
}
