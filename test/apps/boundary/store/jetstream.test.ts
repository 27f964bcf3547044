import { randomUUID } from 'node:crypto';
import { JetStreamLog } from '../../../../src/apps/boundary/store/jetstream/log.ts';
import { NodeStore } from '../../../../src/apps/boundary/store/node-store.ts';
import type { Database } from '../../../../src/engine/database/database.ts';
import { silentLogger } from '../../../../src/engine/logger.ts';
import { privateCluster } from '../../../support/services/jetstream.ts';
import { until } from '../../../support/until.ts';
import { describeStore } from './conformance.ts';
import { storeDatabases } from './databases.ts';
import type { Opened } from './scene.ts';

/** Three servers on loopback, as a zone has them. */
async function open(): Promise<Opened> {
  const servers = await privateCluster();
  await Promise.all(servers.map(({ service }) => service.start()));
  const { databases, close } = await storeDatabases();
  const openLog = (database: Database) =>
    JetStreamLog.open(database, {
      servers: servers.map(({ url }) => url),
      monitorUrls: servers.map(({ monitorUrl }) => monitorUrl),
      replicas: 3,
      logger: silentLogger,
      tenantId: randomUUID(),
      zone: 'plant-a',
    });
  const [first, second] = databases;
  let log: JetStreamLog | undefined;
  await until('the cluster has a leader', async () => {
    log = await openLog(first).catch(() => undefined);
    return log !== undefined;
  });
  if (!log) throw new Error('no log');
  const store = new NodeStore(first, log);
  const other = new NodeStore(second, await openLog(second));
  return {
    store,
    other,
    stop: async () => {
      await Promise.all([store.stop(), other.stop()]);
      await close();
      await Promise.all(servers.map(({ service }) => service[Symbol.asyncDispose]()));
    },
  };
}

describeStore('JetStream, three servers', open);
