/** A boundary node of zone plant-a in a process of its own, to be killed. Says that it serves, and its port. */
import { generateKeyPairSync } from 'node:crypto';
import { Zones } from '../../../../src/apps/boundary/domain/zones.ts';
import { Intake } from '../../../../src/apps/boundary/intake.ts';
import { Admission } from '../../../../src/apps/boundary/limits/admission.ts';
import { defaultLimits } from '../../../../src/apps/boundary/limits/fill.ts';
import { FileBlobs } from '../../../../src/apps/boundary/objects/files.ts';
import { Objects } from '../../../../src/apps/boundary/objects/objects.ts';
import { startBoundaryServer } from '../../../../src/apps/boundary/rpc/server.ts';
import { PostgresFactStore } from '../../../../src/apps/boundary/store/postgres/store.ts';
import { Database } from '../../../../src/engine/database/database.ts';
import { consoleLogger } from '../../../../src/engine/logger.ts';

const { databaseUrl, folder, port } = JSON.parse(process.argv[2] ?? '') as {
  databaseUrl: string;
  folder: string;
  port: number;
};
const database = await Database.connect({ url: databaseUrl });
const zones = new Zones(['plant-a', 'enterprise']);
const zone = zones.resolve('plant-a', 'zone');
const store = new PostgresFactStore(database);
const objects = new Objects({ database, blobs: await FileBlobs.open(folder), maxBytes: 1024 ** 3 });
const admission = new Admission({ store, limits: defaultLimits, freeBytes: async () => undefined });
const server = await startBoundaryServer({
  node: {
    zone,
    zones,
    sendsTo: [zones.resolve('enterprise', 'zone')],
    tenantId: 'default',
    store,
    intake: new Intake({ zone, zones, store, objects, admission, holdGraceMs: 600_000 }),
    objects,
    isGenuine: () => false,
    receiptKey: { id: 'k1', privateKey: generateKeyPairSync('ed25519').privateKey },
    logger: consoleLogger,
    onRefusal: () => {},
  },
  host: '127.0.0.1',
  port,
});
console.log(`serves on ${server.port}`);
