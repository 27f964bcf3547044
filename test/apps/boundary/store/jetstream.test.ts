import { randomUUID } from 'node:crypto';
import { JetStreamLog } from '../../../../src/apps/boundary/store/jetstream/log.ts';
import { NodeStore } from '../../../../src/apps/boundary/store/node-store.ts';
import { silentLogger } from '../../../../src/engine/logger.ts';
import { privateJetStream } from '../../../support/services/jetstream.ts';
import { describeStore } from './conformance.ts';
import { storeDatabases } from './databases.ts';
import type { Opened } from './scene.ts';

async function open(): Promise<Opened> {
  const server = await privateJetStream();
  await server.service.start();
  const { databases, close } = await storeDatabases();
  const stores = await Promise.all(
    databases.map(async (database) => {
      const log = await JetStreamLog.open(database, {
        servers: [server.url],
        monitorUrls: [server.monitorUrl],
        replicas: 1,
        logger: silentLogger,
        tenantId: randomUUID(),
        zone: 'plant-a',
      });
      return new NodeStore(database, log);
    }),
  );
  const [store, other] = stores;
  if (!store || !other) throw new Error('two stores are needed');
  return {
    store,
    other,
    stop: async () => {
      await Promise.all(stores.map((each) => each.stop()));
      await close();
      await server.service[Symbol.asyncDispose]();
    },
  };
}

describeStore('JetStream', open);
