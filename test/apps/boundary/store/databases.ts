import { boundaryComponent } from '../../../../src/apps/boundary/component.ts';
import { Database } from '../../../../src/engine/database/database.ts';
import { engineComponent } from '../../../../src/engine/database/migrate.ts';
import { prepareTenants } from '../../../../src/engine/database/tenant.ts';
import { eventsComponent } from '../../../../src/events/component.ts';
import { migratedDatabase } from '../../../support/postgres.ts';

/** Two connections to one database with the tables of the boundary, as two processes of a node have them. */
export async function storeDatabases(): Promise<{
  readonly url: string;
  readonly databases: readonly [Database, Database];
  close(): Promise<void>;
}> {
  const { url, drop } = await migratedDatabase([engineComponent, eventsComponent, boundaryComponent]);
  const databases = await Promise.all([Database.connect({ url }), Database.connect({ url })]);
  const [database] = databases;
  await prepareTenants(database);
  return {
    url,
    databases,
    close: async () => {
      await Promise.all(databases.map((each) => each.close()));
      await drop();
    },
  };
}
