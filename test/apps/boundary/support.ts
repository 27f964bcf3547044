import { onTestFinished } from 'vitest';
import { boundaryComponent } from '../../../src/apps/boundary/component.ts';
import type { NodeStoreOptions } from '../../../src/apps/boundary/store/node-store.ts';
import { PostgresFactStore } from '../../../src/apps/boundary/store/postgres/store.ts';
import { Database } from '../../../src/engine/database/database.ts';
import { engineComponent } from '../../../src/engine/database/migrate.ts';
import { prepareTenants } from '../../../src/engine/database/tenant.ts';
import { eventsComponent } from '../../../src/events/component.ts';
import { migratedDatabase } from '../../support/postgres.ts';

/** A database with the tables of the boundary, gone with the test. */
export async function boundaryDatabase(): Promise<{ url: string; database: Database }> {
  const { url, drop } = await migratedDatabase([engineComponent, eventsComponent, boundaryComponent]);
  const database = await Database.connect({ url });
  onTestFinished(async () => {
    await database.close();
    await drop();
  });
  await prepareTenants(database);
  return { url, database };
}

export function storeOn(database: Database, options?: NodeStoreOptions): PostgresFactStore {
  const store = new PostgresFactStore(database, options);
  onTestFinished(() => store.stop());
  return store;
}
